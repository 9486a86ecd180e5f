// A carrier between the ranks of one process, for tests: it copies a piece once both sides have
// named it, when the test says so.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/net/carrier.h"
#include "penstock/util/process/mutex.h"

namespace penstock::net::testing_nodes {

/// What the carriers of all ranks share. Thread-safe.
class PieceTable {
 public:
  /// Sender, receiver, lane, number.
  using Name = std::tuple<int, int, int, uint64_t>;

  /// Whether pieces wait for `let_go()`.
  void hold(bool held) {
    MutexLock lock(mutex_);
    held_ = held;
  }
  /// Copies `count` pieces that are complete, the latest first, or fails them.
  size_t let_go(size_t count = SIZE_MAX, const std::string& error = "") {
    size_t done = 0;
    for (; done < count; ++done) {
      Both piece;
      {
        MutexLock lock(mutex_);
        if (complete_.empty()) break;
        piece = std::move(complete_.back());
        complete_.pop_back();
      }
      finish(piece, error);
    }
    return done;
  }
  /// Of the pieces that are complete: lane and size, in the order in which they became so.
  std::vector<std::pair<int, size_t>> waiting() {
    MutexLock lock(mutex_);
    std::vector<std::pair<int, size_t>> all;
    for (const Both& piece : complete_) all.emplace_back(piece.lane, piece.out.bytes.size());
    return all;
  }
  std::set<std::pair<int, int>> lost() {
    MutexLock lock(mutex_);
    return lost_;
  }
  /// rank: whether it was closed orderly.
  std::map<int, bool> closed() {
    MutexLock lock(mutex_);
    return closed_;
  }

 private:
  friend class FakeCarrier;
  struct Both {
    int lane = 0;
    Carried<Bytes> out;
    Carried<Memory> in;
    Carrier::Done sent;
    Carrier::Done received;
  };

  template <class Put>
  void put(const Name& name, Put put_side) {
    Both now;
    {
      MutexLock lock(mutex_);
      Both& piece = half_[name];
      piece.lane = std::get<2>(name);
      put_side(piece);
      if (!piece.sent || !piece.received) return;
      Both both = std::move(piece);
      half_.erase(name);
      if (held_) {
        complete_.push_back(std::move(both));
        return;
      }
      now = std::move(both);
    }
    finish(now, "");
  }
  static void finish(const Both& piece, const std::string& error) {
    const bool fits = piece.in.bytes.size() == piece.out.bytes.size();
    if (error.empty() && fits)
      std::memcpy(piece.in.bytes.data(), piece.out.bytes.data(), piece.in.bytes.size());
    const std::string why = fits ? error : "the sides of a piece differ";
    piece.sent(why);
    piece.received(why);
  }

  Mutex mutex_;
  bool held_ GUARDED_BY(mutex_) = false;
  std::map<Name, Both> half_ GUARDED_BY(mutex_);
  std::vector<Both> complete_ GUARDED_BY(mutex_);
  std::set<std::pair<int, int>> lost_ GUARDED_BY(mutex_);
  std::map<int, bool> closed_ GUARDED_BY(mutex_);
};

class FakeCarrier : public Carrier {
 public:
  FakeCarrier(std::shared_ptr<PieceTable> table, int rank)
      : table_(std::move(table)), rank_(rank) {}

  void send(int peer, int lane, Carried<Bytes> piece, Done done) override {
    const auto name = PieceTable::Name(rank_, peer, lane, piece.number);
    table_->put(name, [&](PieceTable::Both& both) {
      both.out = std::move(piece);
      both.sent = std::move(done);
    });
  }
  void receive(int peer, int lane, Carried<Memory> piece, Done done) override {
    const auto name = PieceTable::Name(peer, rank_, lane, piece.number);
    table_->put(name, [&](PieceTable::Both& both) {
      both.in = std::move(piece);
      both.received = std::move(done);
    });
  }
  void lose(int peer) override {
    MutexLock lock(table_->mutex_);
    table_->lost_.emplace(rank_, peer);
  }
  void close(bool orderly) override {
    MutexLock lock(table_->mutex_);
    table_->closed_[rank_] = orderly;
    // As a library does that is closed: it lets go of everything. The other side may be open.
    table_->half_.clear();
    table_->complete_.clear();
  }

 private:
  std::shared_ptr<PieceTable> table_;
  int rank_;
};

}  // namespace penstock::net::testing_nodes
