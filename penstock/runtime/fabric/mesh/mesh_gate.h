// The stop gate of ranks: after which mini-batch a stopped run ends, without a race and without a
// message as long as nobody stops. A rank that wants to stop asks rank 0; rank 0 freezes all gates;
// each says how far its workers have come; the furthest is the end.
#pragma once

#include <atomic>
#include <cstdint>

#include "penstock/runtime/fabric/mesh/run_notes.h"
#include "penstock/util/ids.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// One rank's gate. Thread-safe.
class MeshGate {
 public:
  /// `flag` may be null.
  explicit MeshGate(const std::atomic<bool>* flag) : flag_(flag) {}

  enum class Entry : uint8_t { Enters, Stays, Asks };
  /// Whether a worker may begin the mini-batch; blocks while the gate is frozen. Asks: the first to
  /// see the flag; rank 0 is to be asked for a stop, then the call made again.
  Entry enter(MiniBatchId mini_batch);

  /// True once, when the flag is set and nobody here has asked for a stop: for a rank without
  /// workers.
  bool wants_stop();

  /// Freezes; returns the last mini-batch that was begun, -1: none.
  int64_t freeze();
  /// The end is known.
  void set_limit(int64_t limit);
  /// The run has failed: nobody waits any more.
  void close();
  int64_t last_started() const;

 private:
  const std::atomic<bool>* flag_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t started_ GUARDED_BY(mutex_) = -1;
  int64_t limit_ GUARDED_BY(mutex_) = INT64_MAX;
  bool asked_ GUARDED_BY(mutex_) = false;
  bool frozen_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
};

/// Rank 0's part: one stop, however many ask for it. Thread-safe.
class StopRound {
 public:
  explicit StopRound(int ranks) : ranks_(ranks) {}
  /// True for the first: all gates are to be frozen.
  bool begin();
  /// A gate is frozen; true for the last: `limit` is the end.
  bool on_frozen(int64_t started, int64_t& limit);

 private:
  int ranks_;
  Mutex mutex_;
  bool begun_ GUARDED_BY(mutex_) = false;
  int frozen_ GUARDED_BY(mutex_) = 0;
  int64_t limit_ GUARDED_BY(mutex_) = -1;
};

/// One rank's gate, and what the ranks tell each other of it. Thread-safe.
class MeshStop {
 public:
  /// `flag` may be null.
  MeshStop(const RunNotes& notes, const std::atomic<bool>* flag)
      : notes_(notes), gate_(flag), round_(notes.ranks()) {}

  /// RunControl::begin().
  bool begin(MiniBatchId mini_batch);
  /// Ends the run early, on all ranks.
  void ask();
  /// The same where the flag is set: for a rank without workers.
  void look();
  void close() { gate_.close(); }
  int64_t last_started() const { return gate_.last_started(); }

  // Notes of other ranks.
  void on_ask();
  void on_freeze() { notes_.tell(0, NoteKind::Frozen, gate_.freeze()); }
  void on_frozen(int64_t started);
  void on_limit(int64_t limit) { gate_.set_limit(limit); }

 private:
  const RunNotes& notes_;
  MeshGate gate_;
  StopRound round_;
};

}  // namespace penstock::runtime
