// Events that must happen in the order of their times: sends, and messages that reach a link after
// they waited for the message before; internal to the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::simulate::detail {

/// Ties in time are broken by kind and worker, so that the result does not depend on the order of
/// insertion: messages that travel come before the lanes of sums, those before
/// workers, then by number. Times are not negative. The
/// event "none" is later than all others.
struct Event {
  uint64_t order = UINT64_MAX;
  uint64_t time = UINT64_MAX;

  /// `receiver`: the worker that will receive. It breaks no tie, because no worker has two events.
  static Event of_worker(int64_t time_ns, int32_t worker, int32_t receiver) {
    return {kWorker | static_cast<uint64_t>(worker) << 31 | static_cast<uint64_t>(receiver),
            static_cast<uint64_t>(time_ns)};
  }
  /// `slot`: where the message is stored until then.
  static Event of_message(int64_t time_ns, int32_t sender, uint32_t slot) {
    return {static_cast<uint64_t>(sender) << 32 | slot, static_cast<uint64_t>(time_ns)};
  }
  /// Something changes on a lane of sums.
  static Event of_lane(int64_t time_ns, int32_t lane) {
    return {kLane | static_cast<uint64_t>(lane), static_cast<uint64_t>(time_ns)};
  }
  int64_t time_ns() const { return static_cast<int64_t>(time); }
  bool is_none() const { return order == UINT64_MAX; }
  bool is_worker() const { return (order & kWorker) != 0; }
  bool is_lane() const { return (order & (kWorker | kLane)) == kLane; }
  int32_t lane() const { return static_cast<int32_t>(order & INT32_MAX); }
  int32_t worker() const { return static_cast<int32_t>(order >> 31 & INT32_MAX); }
  int32_t receiver() const { return static_cast<int32_t>(order & INT32_MAX); }
  size_t slot() const { return order & UINT32_MAX; }
  bool before(const Event& other) const { return key() < other.key(); }

 private:
  static constexpr uint64_t kWorker = uint64_t{1} << 63;
  static constexpr uint64_t kLane = uint64_t{1} << 62;
  /// One number, so that comparing needs no branch.
  unsigned __int128 key() const { return static_cast<unsigned __int128>(time) << 64 | order; }
};

/// A heap of four children per node: half as deep as a binary one, and a node's children are one
/// cache line. Places without an event hold "none".
class EventQueue {
 public:
  bool empty() const { return size_ == 0; }
  const Event& first() const { return at(0); }
  /// The second event; "none" if there is only one.
  const Event& second() const { return size_ > 1 ? at(1 + least_child(0)) : last_; }

  void push(const Event& event) {
    if (quads_.size() * 4 < size_ + 4) quads_.emplace_back();
    sift_up(size_++, event);
  }

  Event pop() {
    const Event popped = at(0);
    const Event moved = at(--size_);
    at(size_) = {};
    if (size_ == 0) return popped;
    // The event that was last usually goes far down again: so the hole moves to the bottom first,
    // without comparisons with that event.
    size_t hole = 0;
    while (4 * hole + 1 < size_) {
      const size_t child = 4 * hole + 1 + least_child(hole);
      at(hole) = at(child);
      hole = child;
    }
    sift_up(hole, moved);
    return popped;
  }

 private:
  struct alignas(64) Quad {
    Event events[4];
  };
  // Event 0 is last in its quad, so that the children of event i are the quad i + 1.
  Event& at(size_t i) { return quads_[(i + 3) / 4].events[(i + 3) % 4]; }
  const Event& at(size_t i) const { return quads_[(i + 3) / 4].events[(i + 3) % 4]; }

  size_t least_child(size_t parent) const {
    const Event* children = quads_[parent + 1].events;
    const size_t low = children[1].before(children[0]) ? 1 : 0;
    const size_t high = children[3].before(children[2]) ? 3 : 2;
    return children[high].before(children[low]) ? high : low;
  }

  void sift_up(size_t hole, const Event& event) {
    while (hole > 0) {
      const size_t parent = (hole - 1) / 4;
      if (!event.before(at(parent))) break;
      at(hole) = at(parent);
      hole = parent;
    }
    at(hole) = event;
  }

  std::vector<Quad> quads_;
  size_t size_ = 0;
  Event last_;
};

}  // namespace penstock::simulate::detail
