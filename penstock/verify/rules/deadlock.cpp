// deadlock: with the given number of credits per channel every worker reaches the end of its list.
//
// Smallest schedule that breaks it: two stages, one micro-batch, `0RECV_B0,0F0,0SEND_F0,0B0` on worker 0: it waits for gradients of outputs
// that it has not sent. With 0 credits also two workers that send to each other before they receive.
#include <algorithm>
#include <string>
#include <vector>

#include "penstock/verify/execution.h"
#include "penstock/verify/rules/rules.h"
#include "penstock/verify/wait_cycle.h"

namespace penstock::verify {
namespace {

std::string wait_text(const Execution& execution, WorkerId worker, WorkerId other) {
  const Action& action = execution.blocked_at(worker);
  const std::string text = to_text(action);
  if (is_send(action.op)) return fmt::format("worker {} at {} waits for worker {} to receive", worker.value, text, other.value);
  if (is_receive(action.op)) return fmt::format("worker {} at {} waits for worker {} to send", worker.value, text, other.value);
  if (action.op == Op::SyncGradients) return fmt::format("worker {} at {} waits for worker {} to join", worker.value, text, other.value);
  return fmt::format("worker {} at {} waits for the data of worker {}", worker.value, text, other.value);
}

/// The first 20 waits of the cycle, and how many there are.
std::string cycle_text(const Execution& execution, const std::vector<WorkerId>& cycle) {
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < std::min(cycle.size(), kMost); ++i) {
    if (i > 0) text += "; ";
    text += wait_text(execution, cycle[i], cycle[(i + 1) % cycle.size()]);
  }
  if (cycle.size() > kMost) text += fmt::format("; and {} more", cycle.size() - kMost);
  return text;
}

/// Without a cycle somebody waits for a worker that has nothing more to do. If looking for it takes too long, the first blocked worker is
/// named.
void report_abandoned(const Facts& facts, const Execution& execution, Report& report) {
  constexpr int64_t kMaxSearchCost = 5'000'000;
  const size_t before = report.size();
  int64_t cost = 0;
  WorkerId first_blocked{-1};
  for (int32_t w = 0; w < facts.table.num_workers() && !report.full(); ++w) {
    const WorkerId worker{w};
    if (!execution.is_blocked(worker)) continue;
    if (first_blocked.value < 0) first_blocked = worker;
    cost += execution.wait_search_cost(worker);
    if (cost > kMaxSearchCost) break;
    for (const WorkerId other : execution.waits_for(worker)) {
      if (execution.is_blocked(other)) continue;
      report.add("deadlock", worker, execution.blocked_at(worker), "{}, whose list has ended", wait_text(execution, worker, other));
      break;
    }
  }
  if (report.size() == before) report.add("deadlock", first_blocked, execution.blocked_at(first_blocked), "waits for ever");
}

}  // namespace

void check_deadlock(const Facts& facts, int64_t credits, Report& report) {
  const MessageIndex index(facts);
  Execution execution(facts, index, credits);
  if (execution.run()) return;
  const std::vector<WorkerId> cycle = shortest_wait_cycle(execution, facts.table.num_workers());
  if (cycle.empty()) {
    report_abandoned(facts, execution, report);
    return;
  }
  report.add("deadlock", cycle[0], execution.blocked_at(cycle[0]), "with {} credits per channel, {} workers wait in a cycle: {}", credits,
             cycle.size(), cycle_text(execution, cycle));
}

}  // namespace penstock::verify
