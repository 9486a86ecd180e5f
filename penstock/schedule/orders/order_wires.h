// The links that the messages of an order share, by the rule of the simulator (wire_rule.h): each
// unit below a level has one wire up to that level and one down from it.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/orders/order_problem.h"

namespace penstock::schedule {

/// Not thread-safe.
class OrderWires {
 public:
  struct Message {
    int32_t link = 0;  ///< the stage that it leaves or, backward, comes to
    int32_t sender = 0;
    int32_t receiver = 0;
    int32_t hop = 0;  ///< wires passed or reserved: up, then down
    int64_t end = 0;  ///< when its last byte leaves the wires passed so far
  };
  static constexpr int32_t kNobody = -1;

  /// `problem` must outlive it.
  explicit OrderWires(const OrderProblem& problem);

  /// Whether some message occupies a wire for longer than a negligible time.
  bool are_used() const { return used_; }
  bool occupies(int32_t link) const { return is_busy_[static_cast<size_t>(link)]; }
  /// No message takes less to go to the next stage or back.
  int64_t least_time(int32_t link) const;

  /// All wires are free, for ever before.
  void clear();
  /// Takes the message, number `id`, on from `now`, when its first byte reaches its next wire. True
  /// when `when` is its arrival; false when the next wire begins to serve it later, at `when`: call
  /// again then. Calls must be in the order of their times. `before`: the message that it waits
  /// for, unchanged where it waits for none. O(levels).
  bool advance(Message& message, int32_t id, int64_t now, int64_t& when, int32_t& before);

 private:
  struct Wire {
    int64_t free = 0;
    int32_t last = kNobody;  ///< the message that it has served, or is to serve, last
  };
  int32_t unit(int32_t level, int32_t worker) const {
    return problem_->link_units[static_cast<size_t>(level)][static_cast<size_t>(worker)];
  }

  const OrderProblem* problem_;
  bool used_ = false;
  std::vector<bool> is_busy_;       ///< per link
  std::vector<int64_t> latency_;    ///< per link: what is left of its message without wires
  std::vector<size_t> first_wire_;  ///< per level
  std::vector<Wire> wires_;
};

}  // namespace penstock::schedule
