// What must happen in the order of its time: sends, and messages that reach a link after waiting for the one before; internal to the
// simulator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::simulate::detail {

/// Ties in time are broken by what and who it is, so that the result does not depend on the order of insertion: messages under way before
/// workers, then by worker.
struct Event {
  int64_t time_ns = 0;
  uint64_t order = 0;

  static Event of_worker(int64_t time_ns, int32_t worker) { return {time_ns, kWorker | static_cast<uint64_t>(worker)}; }
  /// `slot`: where the message is kept meanwhile.
  static Event of_message(int64_t time_ns, int32_t sender, uint32_t slot) { return {time_ns, static_cast<uint64_t>(sender) << 32 | slot}; }
  bool is_worker() const { return (order & kWorker) != 0; }
  int32_t worker() const { return static_cast<int32_t>(order & INT32_MAX); }
  size_t slot() const { return order & UINT32_MAX; }
  bool before(const Event& other) const { return time_ns != other.time_ns ? time_ns < other.time_ns : order < other.order; }

 private:
  static constexpr uint64_t kWorker = uint64_t{1} << 63;
  Event(int64_t time, uint64_t rank) : time_ns(time), order(rank) {}
};

/// A heap of four children per node: half as deep as a binary one, and a node's children lie in one cache line.
class EventQueue {
 public:
  bool empty() const { return events_.empty(); }
  const Event& first() const { return events_.front(); }

  void push(const Event& event) {
    size_t hole = events_.size();
    events_.push_back(event);
    while (hole > 0) {
      const size_t parent = (hole - 1) / 4;
      if (!event.before(events_[parent])) break;
      events_[hole] = events_[parent];
      hole = parent;
    }
    events_[hole] = event;
  }

  Event pop() {
    const Event popped = events_.front();
    const Event moved = events_.back();
    events_.pop_back();
    if (!events_.empty()) sift_down(moved);
    return popped;
  }

 private:
  void sift_down(const Event& moved) {
    const size_t size = events_.size();
    size_t hole = 0;
    for (;;) {
      const size_t begin = 4 * hole + 1;
      if (begin >= size) break;
      size_t least = begin;
      const size_t end = std::min(begin + 4, size);
      for (size_t child = begin + 1; child < end; ++child) {
        if (events_[child].before(events_[least])) least = child;
      }
      if (!events_[least].before(moved)) break;
      events_[hole] = events_[least];
      hole = least;
    }
    events_[hole] = moved;
  }

  std::vector<Event> events_;
};

}  // namespace penstock::simulate::detail
