// Messages of one link and direction that have been sent but not received, or are waited for; internal to the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::simulate::detail {

struct Letter {
  enum class State : uint8_t {
    None,
    Expected,  ///< its receiver waits, nobody has sent it
    Offered,   ///< rendezvous: its sender waits for the receiver
    Moving,    ///< sent, its arrival is not known yet
    Arrived,   ///< `arrival_ns` is known
  };
  int64_t micro_batch = 0;
  int64_t arrival_ns = 0;
  int32_t sender = -1;
  int32_t receiver = -1;  ///< that waits for it, or -1
  State state = State::None;
};

/// A table by micro-batch. Those in flight are neighbours, so a micro-batch's place is its number modulo the capacity, with linear probing
/// where that is taken. Room that is no longer needed is given back whenever the box runs empty.
class Mailbox {
 public:
  /// The letter of the micro-batch, or nothing. Pointers hold until the next insert or remove.
  Letter* find(int64_t micro_batch) {
    if (size_ == 0) return nullptr;
    for (size_t i = home(micro_batch); letters_[i].state != Letter::State::None; i = (i + 1) & mask()) {
      if (letters_[i].micro_batch == micro_batch) return &letters_[i];
    }
    return nullptr;
  }

  /// The micro-batch must not be there.
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
    // Close the gap for letters that probing has put behind it.
    for (size_t i = (hole + 1) & mask(); letters_[i].state != Letter::State::None; i = (i + 1) & mask()) {
      const size_t wanted = home(letters_[i].micro_batch);
      if (((i - wanted) & mask()) < ((i - hole) & mask())) continue;
      letters_[hole] = letters_[i];
      letters_[i].state = Letter::State::None;
      hole = i;
    }
    if (size_ == 0 && letters_.size() > kKept) letters_ = std::vector<Letter>(kKept);
  }

 private:
  static constexpr size_t kKept = 64;
  size_t mask() const { return letters_.size() - 1; }
  size_t home(int64_t micro_batch) const { return static_cast<size_t>(micro_batch) & mask(); }
  Letter& place(int64_t micro_batch) {
    size_t i = home(micro_batch);
    while (letters_[i].state != Letter::State::None) i = (i + 1) & mask();
    return letters_[i];
  }
  void grow() {
    std::vector<Letter> old(letters_.empty() ? 4 : 2 * letters_.size());
    old.swap(letters_);
    for (const Letter& letter : old) {
      if (letter.state != Letter::State::None) place(letter.micro_batch) = letter;
    }
  }

  std::vector<Letter> letters_;
  size_t size_ = 0;
};

}  // namespace penstock::simulate::detail
