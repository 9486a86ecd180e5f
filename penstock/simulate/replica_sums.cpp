#include "penstock/simulate/replica_sums.h"

#include <algorithm>
#include <utility>

#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

using schedule::Action;
using schedule::Op;

namespace {

/// The place of `part` of `whole` in a pass that takes `pass_ns`; its end where it takes no time.
int64_t scaled(int64_t pass_ns, int64_t part, int64_t whole) {
  if (part == pass_ns || whole == 0) return pass_ns;
  return static_cast<int64_t>(static_cast<__int128>(pass_ns) * part / whole);
}

}  // namespace

ReplicaSums::ReplicaSums(const Costs& costs, const schedule::ScheduleShape& shape,
                         const schedule::WorkerTable& table, SumLanes& lanes)
    : costs_(costs), shape_(shape), table_(table), lanes_(lanes) {
  if (!lanes.any()) return;
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageId stage{static_cast<int32_t>(s)};
    first_.push_back(replicas_.size());
    if (!lanes.carries(stage)) continue;
    Replica replica;
    replica.next = buckets(stage).size();
    replicas_.resize(replicas_.size() + static_cast<size_t>(table.replicas(stage)), replica);
  }
}

size_t ReplicaSums::index_of(StageId stage, int32_t worker) const {
  return first_[stage.index()] + static_cast<size_t>(table_.replica_on(WorkerId{worker}, stage));
}

bool ReplicaSums::waits(StageId stage) const {
  return costs_.stages[stage.index()].waits_for_sums || shape_.global_norm ||
         plan::backward_reads_newest(shape_.policy);
}

bool ReplicaSums::is_last_pass(const Action& action, int32_t worker) const {
  const int64_t replicas = table_.replicas(action.stage);
  const int64_t begin = saturating_mul(action.mini_batch.value, shape_.accumulate);
  const int64_t end = std::min(saturating_add(begin, shape_.accumulate), shape_.micro_batches);
  const int64_t number = table_.replica_on(WorkerId{worker}, action.stage);
  const auto below = [&](int64_t b) { return (b - 1 - number + replicas) / replicas; };
  const auto& passes = replicas_[index_of(action.stage, worker)].passes;
  const auto found = passes.find(action.mini_batch.value);
  return (found == passes.end() ? 0 : found->second) + 1 == below(end) - below(begin);
}

bool ReplicaSums::take_next(StageId stage, int32_t worker, const Moment& needed) {
  Replica& own = replica(stage, worker);
  const int64_t arrival_ns = lanes_.arrival_ns(stage, own.mini_batch, own.next, worker);
  if (arrival_ns == SumLanes::kUnknown) return false;
  const int64_t processor_ns = buckets(stage)[own.next].processor_ns;
  const int64_t paid_ns = std::min(processor_ns, needed.idle_ns - own.spent_idle_ns);
  own.spent_idle_ns += paid_ns;
  own.taken.working_ns = saturating_add(own.taken.working_ns, processor_ns - paid_ns);
  const int64_t needed_ns =
      saturating_add(needed.now_ns, saturating_add(own.taken.waiting_ns, own.taken.working_ns));
  own.taken.waiting_ns =
      saturating_add(own.taken.waiting_ns, std::max<int64_t>(arrival_ns - needed_ns, 0));
  if (own.steps) {
    const int64_t step_ns =
        scaled(own.step_ns, buckets(stage)[own.next].step_ns, costs_.stages[stage.index()].step_ns);
    own.taken.working_ns = saturating_add(own.taken.working_ns, step_ns);
  }
  if (++own.next == buckets(stage).size()) lanes_.taken(stage, own.mini_batch);
  return true;
}

bool ReplicaSums::take_all(StageId stage, int32_t worker, const Moment& now) {
  const Replica& own = replica(stage, worker);
  while (own.next < buckets(stage).size()) {
    if (!take_next(stage, worker, now)) return false;
  }
  return true;
}

bool ReplicaSums::take(const Action& action, int32_t worker, const Moment& now, int64_t work_ns) {
  const StageId stage = action.stage;
  if (schedule::makes_weight_gradients(action.op))
    return !is_last_pass(action, worker) || take_all(stage, worker, now);
  const Replica& own = replica(stage, worker);
  if (action.op != Op::Forward || action.version.value != own.latest) return true;
  const int64_t forward_ns = costs_.stages[stage.index()].forward_ns;
  while (own.next < buckets(stage).size()) {
    const int64_t at_ns = scaled(work_ns, buckets(stage)[own.next].forward_ns, forward_ns);
    const Moment needed{.now_ns = saturating_add(now.now_ns, at_ns), .idle_ns = now.idle_ns};
    if (!take_next(stage, worker, needed)) return false;
  }
  return true;
}

bool ReplicaSums::sync(const Action& action, int32_t worker, const Moment& now,
                       EventQueue& events) {
  const StageId stage = action.stage;
  Replica& own = replica(stage, worker);
  if (own.mini_batch != action.mini_batch) {
    if (!take_all(stage, worker, now)) return false;
    const int64_t at_ns =
        saturating_add(now.now_ns, saturating_add(own.taken.waiting_ns, own.taken.working_ns));
    if (own.given != action.mini_batch) {
      own.spent_idle_ns = now.idle_ns;
      for (size_t b = 0; b < buckets(stage).size(); ++b)
        lanes_.give(stage, action.mini_batch, b, at_ns, events);
    }
    own.given = own.mini_batch = action.mini_batch;
    own.next = 0;
    own.steps = !waits(stage);
  }
  return own.steps || take_all(stage, worker, now);
}

TakenSums ReplicaSums::taken(StageId stage, int32_t worker) {
  return std::exchange(replica(stage, worker).taken, {});
}

void ReplicaSums::made(const Action& action, int32_t worker, const Moment& now, int64_t work_ns,
                       EventQueue& events) {
  const StageId stage = action.stage;
  Replica& own = replica(stage, worker);
  if (!is_last_pass(action, worker)) {
    ++own.passes[action.mini_batch.value];
    return;
  }
  own.passes.erase(action.mini_batch.value);
  own.given = action.mini_batch;
  own.spent_idle_ns = now.idle_ns;
  const StageCost& cost = costs_.stages[stage.index()];
  const bool whole = action.op == Op::Backward;
  for (size_t b = 0; b < cost.buckets.size(); ++b) {
    const int64_t at_ns =
        whole ? scaled(work_ns, cost.buckets[b].backward_ns, cost.backward_ns)
              : scaled(work_ns, cost.buckets[b].backward_weight_ns, cost.backward_weight_ns);
    lanes_.give(stage, action.mini_batch, b, saturating_add(now.now_ns - work_ns, at_ns), events);
  }
}

bool ReplicaSums::step(const Action& action, int32_t worker, int64_t step_ns) {
  Replica& own = replica(action.stage, worker);
  own.latest = action.version.value + 1;
  own.step_ns = step_ns;
  return own.steps;
}

bool ReplicaSums::are_due(StageId stage, int32_t worker) const {
  return replicas_[index_of(stage, worker)].next < buckets(stage).size();
}

int32_t ReplicaSums::given(StageId stage, int32_t worker) const {
  const Replica& own = replicas_[index_of(stage, worker)];
  return lanes_.given(stage, own.mini_batch, own.next);
}

}  // namespace penstock::simulate::detail
