#include "penstock/schedule/orders/order_wires.h"

#include <algorithm>

#include "penstock/schedule/wire_rule.h"

namespace penstock::schedule {

namespace {

/// Messages that occupy links for less than this share of a micro-batch's time on the busiest stage
/// hardly wait for each other, and the search gets much further without links.
constexpr int64_t kOneInSoMany = 1'000;

bool links_matter(const OrderProblem& problem) {
  if (problem.link_units.empty()) return false;
  int64_t longest = 0;
  int64_t compute = 0;
  for (const OrderProblem::Stage& stage : problem.stages) {
    for (const int64_t busy : stage.busy) longest = std::max(longest, busy);
    compute = std::max(compute, stage.forward + stage.input + stage.weight);
  }
  return longest > compute / kOneInSoMany;
}

}  // namespace

OrderWires::OrderWires(const OrderProblem& problem) : problem_(&problem) {
  const bool matter = links_matter(problem);
  for (const OrderProblem::Stage& stage : problem.stages) {
    const int64_t slowest =
        stage.busy.empty() ? 0 : *std::max_element(stage.busy.begin(), stage.busy.end());
    is_busy_.push_back(matter && slowest > 0);
    latency_.push_back(std::max<int64_t>(stage.message - slowest, 0));
    used_ = used_ || is_busy_.back();
  }
  size_t wires = 0;
  for (const std::vector<int32_t>& units : problem.link_units) {
    first_wire_.push_back(wires);
    wires += 2 * (units.empty()
                      ? 0
                      : static_cast<size_t>(*std::max_element(units.begin(), units.end())) + 1);
  }
  wires_.resize(wires);
}

int64_t OrderWires::least_time(int32_t link) const {
  const auto at = static_cast<size_t>(link);
  const OrderProblem::Stage& stage = problem_->stages[at];
  return is_busy_[at] ? latency_[at] + stage.busy.front() : stage.message;
}

void OrderWires::clear() { std::fill(wires_.begin(), wires_.end(), Wire{}); }

bool OrderWires::advance(Message& message, int32_t id, int64_t now, int64_t& when,
                         int32_t& before) {
  const OrderProblem::Stage& stage = problem_->stages[static_cast<size_t>(message.link)];
  const auto most = static_cast<int32_t>(std::min(stage.busy.size(), problem_->link_units.size()));
  // All workers share one unit of the last level.
  int32_t levels = 1;
  while (levels < most && unit(levels, message.sender) != unit(levels, message.receiver)) ++levels;
  const bool arrives =
      pass_wires(levels, message.hop, message.end, now, when, [&](bool up, size_t level) {
        const int32_t own = up ? message.sender : message.receiver;
        const auto at = static_cast<size_t>(unit(static_cast<int32_t>(level), own));
        Wire& wire = wires_[first_wire_[level] + 2 * at + (up ? 0 : 1)];
        if (wire.free > now) before = wire.last;
        if (stage.busy[level] > 0) wire.last = id;
        return reserve_wire(wire.free, stage.busy[level], now);
      });
  if (arrives) when += latency_[static_cast<size_t>(message.link)];
  return arrives;
}

}  // namespace penstock::schedule
