// Messages of one link and direction to one worker that have been sent but not received; internal
// to the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace penstock::simulate::detail {

struct Letter {
  enum class State : uint8_t {
    None,
    Offered,  ///< rendezvous: its sender waits for the receiver
    Arrived,  ///< at `arrival_ns`, in the receiver's past or future
  };
  int64_t micro_batch = 0;
  int64_t arrival_ns = 0;
  int32_t sender = -1;
  State state = State::None;
};

/// A hash table by micro-batch: open addressing with linear probing. The hash scatters (Fibonacci):
/// if neighbouring micro-batches were neighbours in the table, removing one in the middle would
/// cost a walk over all that follow.
class LetterTable {
 public:
  Letter* find(int64_t micro_batch) {
    if (size_ == 0) return nullptr;
    for (size_t i = home(micro_batch); letters_[i].state != Letter::State::None;
         i = (i + 1) & mask()) {
      if (letters_[i].micro_batch == micro_batch) return &letters_[i];
    }
    return nullptr;
  }

  Letter& insert(int64_t micro_batch, Letter::State state) {
    if (2 * (size_ + 1) > letters_.size()) grow();
    ++size_;
    Letter& letter = place(micro_batch);
    letter = {.micro_batch = micro_batch, .state = state};
    return letter;
  }

  void remove(Letter& letter) {
    auto hole = static_cast<size_t>(&letter - letters_.data());
    letters_[hole].state = Letter::State::None;
    --size_;
    // Close the gap for letters that probing has put after it.
    for (size_t i = (hole + 1) & mask(); letters_[i].state != Letter::State::None;
         i = (i + 1) & mask()) {
      const size_t wanted = home(letters_[i].micro_batch);
      if (((i - wanted) & mask()) < ((i - hole) & mask())) continue;
      letters_[hole] = letters_[i];
      letters_[i].state = Letter::State::None;
      hole = i;
    }
  }

  size_t size() const { return size_; }
  size_t capacity() const { return letters_.size(); }

 private:
  size_t mask() const { return letters_.size() - 1; }
  size_t home(int64_t micro_batch) const {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio
    return static_cast<size_t>((static_cast<uint64_t>(micro_batch) * kGolden) >> shift_);
  }
  Letter& place(int64_t micro_batch) {
    size_t i = home(micro_batch);
    while (letters_[i].state != Letter::State::None) i = (i + 1) & mask();
    return letters_[i];
  }
  void grow() {
    std::vector<Letter> old(letters_.empty() ? 4 : 2 * letters_.size());
    old.swap(letters_);
    shift_ = 64 - __builtin_ctzll(letters_.size());
    for (const Letter& letter : old) {
      if (letter.state != Letter::State::None) place(letter.micro_batch) = letter;
    }
  }

  std::vector<Letter> letters_;
  size_t size_ = 0;
  int shift_ = 64;
};

/// Usually there is one letter or none, which is stored in the box itself; a table is made for
/// more. Memory that is no longer needed is released each time the table becomes empty.
class Mailbox {
 public:
  /// The letter of the micro-batch, or nothing. Pointers hold until the next insert or remove.
  Letter* find(int64_t micro_batch) {
    if (first_.state != Letter::State::None && first_.micro_batch == micro_batch) return &first_;
    return more_ == nullptr ? nullptr : more_->find(micro_batch);
  }

  /// The micro-batch must not be there.
  Letter& insert(int64_t micro_batch, Letter::State state) {
    if (first_.state == Letter::State::None)
      return first_ = {.micro_batch = micro_batch, .state = state};
    if (more_ == nullptr) more_ = std::make_unique<LetterTable>();
    return more_->insert(micro_batch, state);
  }

  void remove(Letter& letter) {
    if (&letter == &first_) {
      first_.state = Letter::State::None;
      return;
    }
    more_->remove(letter);
    if (more_->size() == 0 && more_->capacity() > kKept) more_.reset();
  }

 private:
  static constexpr size_t kKept = 16;

  Letter first_;
  std::unique_ptr<LetterTable> more_;
};

}  // namespace penstock::simulate::detail
