#include "penstock/verify/facts.h"

#include <algorithm>

#include "penstock/schedule/generate.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::verify {
namespace {

bool is_forward_only(const schedule::Schedule& s) {
  if (s.kind == to_string(schedule::Kind::ForwardOnly)) return true;
  for (const schedule::Kind kind : schedule::all_kinds()) {
    if (s.kind == to_string(kind)) return false;
  }
  const auto trains = [](const Action& a) { return a.op == Op::Backward || a.op == Op::Step || a.op == Op::SyncGradients; };
  return std::none_of(s.workers.begin(), s.workers.end(), [&](const auto& list) { return std::any_of(list.begin(), list.end(), trains); });
}

/// Direction of a message: outputs go to later stages, gradients to earlier ones.
bool peer_is_later(Op op) { return op == Op::SendForward || op == Op::RecvBackward; }

void check_numbers(const Facts& facts, WorkerId worker, const Action& action, Report& report) {
  const StageId stage = facts.table.stage_of(worker);
  if (action.stage != stage) {
    report.add("complete", worker, action, "the worker belongs to stage {}", stage.value);
    return;
  }
  if (!is_compute(action.op) && !facts.schedule.lowered) {
    report.add("complete", worker, action, "occurs in a schedule that is not lowered");
    return;
  }
  if (!is_compute(action.op) && !is_message(action.op)) {
    if (action.mini_batch.value < 0 || action.mini_batch.value >= facts.mini_batches) {
      report.add("complete", worker, action, "the schedule has {} mini-batches", facts.mini_batches);
    }
    return;
  }
  if (action.micro_batch.value < 0 || action.micro_batch.value >= facts.micro_batches) {
    report.add("complete", worker, action, "the schedule has {} micro-batches", facts.micro_batches);
    return;
  }
  const MiniBatchId mini_batch = facts.schedule.shape.mini_batch_of(action.micro_batch);
  if (action.mini_batch != mini_batch) {
    report.add("complete", worker, action, "is marked as mini-batch {}, expected {}", action.mini_batch.value, mini_batch.value);
  }
  const WorkerId owner = facts.table.worker_of(stage, action.micro_batch);
  if (owner != worker)
    report.add("complete", worker, action, "micro-batch {} of stage {} runs on worker {}", action.micro_batch.value, stage.value,
               owner.value);
  if (!is_message(action.op)) return;
  if (action.peer.value < 0 || action.peer.value >= facts.num_stages) {
    report.add("pairing", worker, action, "the schedule has {} stages, there is no stage {}", facts.num_stages, action.peer.value);
  } else if (peer_is_later(action.op) != (action.peer > stage) || action.peer == stage) {
    report.add("pairing", worker, action, "the other stage must be {}, found stage {}", peer_is_later(action.op) ? "later" : "earlier",
               action.peer.value);
  }
}

}  // namespace

Facts::Facts(const schedule::Schedule& s)
    : schedule(s),
      table(s.shape),
      num_stages(s.shape.num_stages()),
      micro_batches(s.shape.micro_batches),
      mini_batches(s.shape.num_mini_batches()),
      forward_only(is_forward_only(s)) {}

bool check_placement(const schedule::Schedule& schedule, Report& report) {
  const size_t before = report.size();
  const WorkerId nobody{-1};
  try {
    validate(schedule.shape);
  } catch (const ConfigError& error) {
    report.add("complete", nobody, "{}", error.what());
    return false;
  }
  const int num_workers = schedule.shape.num_workers();
  if (schedule.workers.size() != static_cast<size_t>(num_workers)) {
    report.add("complete", nobody, "the schedule has {} lists, its replicas are {} workers", schedule.workers.size(), num_workers);
    return false;
  }
  // The rules' tables have an entry per stage and micro-batch. A schedule that holds far fewer actions than that is not worth them.
  const int64_t cells = saturating_mul(schedule.shape.micro_batches, schedule.shape.num_stages());
  const int64_t actions = schedule.num_actions();
  if (cells > saturating_add(saturating_mul(actions, 4), 4096)) {
    report.add("complete", nobody, "{} micro-batches on {} stages need at least {} actions, found {}", schedule.shape.micro_batches,
               schedule.shape.num_stages(), cells, actions);
    return false;
  }
  const Facts facts(schedule);
  for (size_t w = 0; w < schedule.workers.size() && !report.full(); ++w) {
    for (const Action& action : schedule.workers[w]) check_numbers(facts, WorkerId{static_cast<int32_t>(w)}, action, report);
  }
  return report.size() == before;
}

}  // namespace penstock::verify
