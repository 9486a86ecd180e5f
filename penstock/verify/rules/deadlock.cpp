// deadlock: with the given number of credits per channel every worker reaches the end of its list.
//
// Smallest schedule that breaks it: two stages, one micro-batch, `0RECV_B0,0F0,0SEND_F0,0B0` on
// worker 0: it waits for gradients of outputs that it has not sent. With 0 credits, two workers
// that send to each other before they receive break it too. So do two members of a team that
// compute the same in the same order, `0F0,0SEND_F0,0RECV_B0,0F1` and `1F0,1F1,1SEND_F0`, where the
// next stage needs the outputs of both before it sends gradients.
#include <algorithm>
#include <string>

#include "penstock/util/text/plural.h"
#include "penstock/verify/counterexample.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

/// "worker 3", of a member of a team also which one; it is the same one of all its stages.
std::string worker_text(const Facts& facts, WorkerId worker) {
  const schedule::TeamPlace place = facts.places.of(facts.table.first_stage_of(worker));
  if (place.size == 1) return fmt::format("worker {}", worker.value);
  return fmt::format("worker {} (member {} of stage {})", worker.value, place.member,
                     place.whole.value);
}

std::string wait_text(const Facts& facts, const Counterexample::Wait& wait) {
  const Action& action = facts.workers()[wait.worker.index()][static_cast<size_t>(wait.position)];
  return fmt::format("{} at {} waits for {} {}", worker_text(facts, wait.worker), to_text(action),
                     worker_text(facts, wait.waits_for), wait.reason);
}

/// The first 20 waits of the cycle, and how many there are.
std::string cycle_text(const Facts& facts, const std::vector<Counterexample::Wait>& cycle) {
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < std::min(cycle.size(), kMost); ++i) {
    if (i > 0) text += "; ";
    text += wait_text(facts, cycle[i]);
  }
  if (cycle.size() > kMost) text += fmt::format("; and {} more", cycle.size() - kMost);
  return text;
}

}  // namespace

void check_deadlock(const Facts& facts, int64_t credits, Report& report) {
  const std::optional<Counterexample> found = find_deadlock(facts, credits);
  if (!found) return;
  const auto blocked_at = [&](WorkerId worker, int64_t position) -> const Action& {
    return facts.workers()[worker.index()][static_cast<size_t>(position)];
  };
  if (!found->cycle.empty()) {
    const Counterexample::Wait& first = found->cycle[0];
    report.add("deadlock", first.worker, blocked_at(first.worker, first.position),
               "with {} per channel, {} workers wait in a cycle: {}", plural(credits, "credit"),
               found->cycle.size(), cycle_text(facts, found->cycle));
    return;
  }
  for (const Counterexample::Wait& wait : found->abandoned) {
    report.add("deadlock", wait.worker, blocked_at(wait.worker, wait.position),
               "{}, whose list has ended", wait_text(facts, wait));
  }
}

}  // namespace penstock::verify
