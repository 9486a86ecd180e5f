#include "penstock/verify/facts.h"

#include <algorithm>

#include "penstock/schedule/generate.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::verify {
namespace {

bool is_forward_only(const schedule::Schedule& s) {
  if (const auto known = plan::find_strategy(s.kind)) return !traits(*known).trains;
  const auto trains = [](const Action& a) {
    return makes_input_gradients(a.op) || makes_weight_gradients(a.op) || a.op == Op::Step ||
           a.op == Op::SyncGradients || a.op == Op::NormGradients;
  };
  return std::none_of(s.workers.begin(), s.workers.end(), [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), trains);
  });
}

int64_t most_held_by_a_worker(const schedule::WorkerTable& table) {
  if (!table.has_shared_workers()) return 1;
  size_t most = 1;
  for (int32_t w = 0; w < table.num_workers(); ++w)
    most = std::max(most, table.held_by(WorkerId{w}).size());
  return static_cast<int64_t>(most);
}

/// Direction of a message: outputs go to later stages, gradients to earlier ones.
bool peer_is_later(Op op) { return op == Op::SendForward || op == Op::RecvBackward; }

/// Checks the actions of one worker after another.
class PlacementWalk {
 public:
  PlacementWalk(const Facts& facts, Report& report)
      : facts_(facts), report_(report), held_by_(static_cast<size_t>(facts.num_stages), -1) {}

  void walk(WorkerId worker) {
    worker_ = worker;
    for (const auto& held : facts_.table.held_by(worker))
      held_by_[held.stage.index()] = worker.value;
    for (const Action& action : facts_.workers()[worker.index()]) visit(action);
  }

 private:
  void visit(const Action& action) {
    const StageId stage = action.stage;
    if (stage.value < 0 || stage.value >= facts_.num_stages ||
        held_by_[stage.index()] != worker_.value) {
      const auto held = facts_.table.held_by(worker_);
      report_.add("complete", worker_, action, "the worker belongs to stage {}{}",
                  held[0].stage.value,
                  held.size() > 1 ? fmt::format(" and {} more", held.size() - 1) : std::string());
      return;
    }
    if (!facts_.schedule.lowered && !is_compute(action.op)) {
      report_.add("complete", worker_, action, "occurs in a schedule that is not lowered");
    } else if (has_micro_batch(action.op)) {
      visit_micro_batch(action);
      if (is_message(action.op)) visit_peer(action);
    } else {
      visit_mini_batch(action);
    }
  }

  void visit_micro_batch(const Action& action) {
    if (action.micro_batch.value < 0 || action.micro_batch.value >= facts_.micro_batches) {
      report_.add("complete", worker_, action, "the schedule has {} micro-batches",
                  facts_.micro_batches);
      return;
    }
    const MiniBatchId mini_batch = facts_.schedule.shape.mini_batch_of(action.micro_batch);
    if (action.mini_batch != mini_batch) {
      report_.add("complete", worker_, action, "is marked as mini-batch {}, expected {}",
                  action.mini_batch.value, mini_batch.value);
    }
    const WorkerId owner = facts_.owner(action.stage, action.micro_batch);
    if (owner != worker_) {
      report_.add("complete", worker_, action, "micro-batch {} of stage {} runs on worker {}",
                  action.micro_batch.value, action.stage.value, owner.value);
    }
  }

  void visit_peer(const Action& action) {
    if (action.peer.value < 0 || action.peer.value >= facts_.num_stages) {
      report_.add("pairing", worker_, action, "the schedule has {} stages, there is no stage {}",
                  facts_.num_stages, action.peer.value);
    } else if (peer_is_later(action.op) != (action.peer > action.stage) ||
               action.peer == action.stage) {
      report_.add("pairing", worker_, action, "the other stage must be {}, found stage {}",
                  peer_is_later(action.op) ? "later" : "earlier", action.peer.value);
    } else if (facts_.table.has_shared_workers() && action.micro_batch.value >= 0 &&
               facts_.owner(action.peer, action.micro_batch) == worker_) {
      report_.add("pairing", worker_, action,
                  "both stages run micro-batch {} on this worker, so nothing is sent",
                  action.micro_batch.value);
    }
  }

  void visit_mini_batch(const Action& action) {
    if (action.mini_batch.value < 0 || action.mini_batch.value >= facts_.mini_batches) {
      report_.add("complete", worker_, action, "the schedule has {} mini-batches",
                  facts_.mini_batches);
    } else if (action.op == Op::NormGradients &&
               action.stage != facts_.table.first_stage_of(worker_)) {
      report_.add("complete", worker_, action, "must be marked with the worker's first stage, {}",
                  facts_.table.first_stage_of(worker_).value);
    }
  }

  const Facts& facts_;
  Report& report_;
  std::vector<int32_t> held_by_;  // by stage: the last worker visited that holds it
  WorkerId worker_{-1};
};

}  // namespace

Facts::Facts(const schedule::Schedule& s)
    : schedule(s),
      table(s.shape),
      places(s.shape.teams),
      num_stages(s.shape.num_stages()),
      micro_batches(s.shape.micro_batches),
      mini_batches(s.shape.num_mini_batches()),
      most_held(most_held_by_a_worker(table)),
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
    report.add("complete", nobody, "the schedule has {} lists, its shape has {} workers",
               schedule.workers.size(), num_workers);
    return false;
  }
  // The rules' tables have an entry per stage and micro-batch. A schedule with far fewer actions
  // than that is refused, so that no input can ask for huge tables.
  const int64_t cells = saturating_mul(schedule.shape.micro_batches, schedule.shape.num_stages());
  const int64_t actions = schedule.num_actions();
  if (cells > saturating_add(saturating_mul(actions, 4), 4096)) {
    report.add("complete", nobody,
               "{} micro-batches on {} stages need at least {} actions, found {}",
               schedule.shape.micro_batches, schedule.shape.num_stages(), cells, actions);
    return false;
  }
  const Facts facts(schedule);
  PlacementWalk walk(facts, report);
  for (int32_t w = 0; w < num_workers && !report.full(); ++w) walk.walk(WorkerId{w});
  return report.size() == before;
}

}  // namespace penstock::verify
