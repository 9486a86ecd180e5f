#include "penstock/planner/pricing/prediction.h"

#include <algorithm>

#include "penstock/planner/pricing/estimate.h"
#include "penstock/planner/pricing/pass_memory.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/timeline.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::planner {

using plan::Plan;
using plan::Strategy;
using schedule::Op;
using schedule::ScheduleShape;

namespace {

// Simulated micro-batches: enough that filling and draining the pipeline stays below about 2 % of
// the time.
constexpr int64_t kLeastSimulated = 256;
constexpr int64_t kSimulatedPerStage = 64;
constexpr int64_t kSimulatedActions = 1'000'000;
constexpr int64_t kWrittenActions = 100'000;
constexpr int64_t kLatencyPerStage = 8;
constexpr int64_t kLatencySteps = 3;

int64_t members_of_stages(const Plan& plan) {
  int64_t members = 0;
  for (const plan::Stage& stage : plan.stages) members += stage.tensor;
  return members;
}

// The number of micro-batches to simulate, the same for every strategy up to a whole number of
// steps; 0 when that would be too long.
int64_t simulated_micro_batches(const Context& context, const Plan& plan, bool written) {
  if (plan.num_workers() > simulate::kMaxSimulatedWorkers) return 0;
  const int most_stages = std::min(context.workers, context.profile.graph.num_layers());
  const int64_t least = std::max(kLeastSimulated, kSimulatedPerStage * most_stages);
  const int64_t wanted = ceil_div(least, plan.micro_batches) * plan.micro_batches;
  const auto stages = members_of_stages(plan);
  // Of those that are written down, only some steps are run.
  if (written &&
      saturating_mul(kLatencySteps, simulate::actions_per_step(plan)) <= kSimulatedActions)
    return wanted;
  const int64_t actions_each = 2 * stages + 4 * std::ssize(schedule::links_of(plan));
  const int64_t at_each_step =
      saturating_add(3 * int64_t{plan.num_workers()}, simulate::sums_per_step(plan));
  // Per micro-batch its own actions and its share of sums, sync, step and free.
  const int64_t affordable =
      saturating_mul(kSimulatedActions, plan.micro_batches) /
      saturating_add(saturating_mul(actions_each, plan.micro_batches), at_each_step);
  if (wanted <= affordable) return wanted;
  const int64_t whole_steps = affordable / plan.micro_batches * plan.micro_batches;
  return whole_steps >= 4 * stages ? whole_steps : 0;
}

// The middle third of the steps.
struct MiddleSteps {
  explicit MiddleSteps(const ScheduleShape& shape)
      : begin(shape.num_mini_batches() / 3),
        end(std::max(begin + 1, shape.num_mini_batches() - begin)) {}

  // What a latency begins with, and ends with.
  bool counts(const schedule::Action& action) const {
    const bool is_end = action.op == Op::Step;
    return (is_end || (action.op == Op::Forward && action.stage.value == 0)) &&
           action.mini_batch.value >= begin && action.mini_batch.value < end;
  }

  int64_t begin;
  int64_t end;
};

// From a micro-batch's first forward to the end of its step on the last stage to make it: the mean
// over these steps, of which the timeline has nothing else.
int64_t mean_latency_ns(const schedule::Timeline& timeline, const MiddleSteps& steps) {
  std::vector<double> step_end_ns(static_cast<size_t>(steps.end - steps.begin), 0);
  std::vector<double> begin_sum_ns(step_end_ns.size(), 0);
  std::vector<int64_t> counts(step_end_ns.size(), 0);
  for (const auto& events : timeline.workers) {
    for (const schedule::TimelineEvent& event : events) {
      const auto s = static_cast<size_t>(event.action.mini_batch.value - steps.begin);
      if (event.action.op == Op::Step) {
        step_end_ns[s] = std::max(step_end_ns[s], static_cast<double>(event.end_ns));
        continue;
      }
      begin_sum_ns[s] += static_cast<double>(event.start_ns);
      ++counts[s];
    }
  }
  double total_ns = 0;
  int64_t count = 0;
  for (size_t s = 0; s < step_end_ns.size(); ++s) {
    total_ns += static_cast<double>(counts[s]) * step_end_ns[s] - begin_sum_ns[s];
    count += counts[s];
  }
  return count == 0 ? 0 : nearest(std::max(total_ns, 0.0) / static_cast<double>(count));
}

// The plan's own schedule and costs.
struct Simulated {
  Simulated(const Context& context, const Split& split, const Plan& plan, TimeLimit time_in = {})
      : shape(schedule::member_shape_of(plan, 1)),
        costs(simulate::costs_of(plan, gradient_groups(context, split))),
        strategy(plan.strategy),
        time(time_in),
        links(schedule::links_of(plan)) {
    shape.global_norm = context.options.global_norm;
    if (shape.global_norm) simulate::add_gathers(plan, costs);
  }

  bool written() const { return !schedule::LazySchedule::can_make(strategy, shape); }

  simulate::Result run(int64_t micro_batches, simulate::Options options = {}) const {
    if (time.exists()) options.progress = [this](int64_t, int64_t) { time.check(); };
    return simulate::PlannedSchedule(strategy, of_length(micro_batches), links)
        .simulate(costs, options);
  }

  ScheduleShape of_length(int64_t micro_batches) const {
    ScheduleShape longer = shape;
    longer.micro_batches = micro_batches;
    return longer;
  }

  ScheduleShape shape;
  simulate::Costs costs;
  Strategy strategy;
  TimeLimit time;
  std::vector<schedule::StageLink> links;
};

struct Outcome {
  double ns = 0;  ///< for all of the micro-batches
  double idle_share = 0;
  std::vector<int64_t> peak_memory_bytes;
};

Outcome outcome_of(simulate::Result result) {
  return {static_cast<double>(result.makespan_ns), result.idle_share,
          std::move(result.peak_memory_bytes)};
}

// `steps` steps of a kind with a flush, of which only `simulated` are run: from the second on all
// take as long as the last.
Outcome repeated(const Simulated& simulation, int64_t micro_batches, int64_t steps,
                 int64_t simulated) {
  Outcome outcome = outcome_of(simulation.run(simulated * micro_batches));
  if (simulated >= steps) return outcome;
  const double before_ns = outcome_of(simulation.run((simulated - 1) * micro_batches)).ns;
  const double busy_share_ns = (1 - outcome.idle_share) * outcome.ns;
  outcome.ns += static_cast<double>(steps - simulated) * (outcome.ns - before_ns);
  outcome.idle_share = 1 - busy_share_ns * static_cast<double>(steps) /
                               static_cast<double>(simulated) / std::max(outcome.ns, 1.0);
  return outcome;
}

// How many of the steps are worth running.
int64_t steps_to_run(const Plan& plan, int64_t steps) {
  return std::clamp<int64_t>(kWrittenActions / simulate::actions_per_step(plan),
                             std::min<int64_t>(2, steps), steps);
}

// What comes to the simulator's memory of a worker for one of its stages.
int64_t message_bytes(const Context& context, const Split& split, const Plan& plan, size_t stage,
                      const StageMemory& memory) {
  return saturating_add(
      MemoryModel::buffer_bytes(memory) - absent_input_bytes(context, split, plan, stage, memory),
      plan.stages[stage].waiting_bytes);
}

void fill_in(const Context& context, const Split& split, const ScheduleShape& shape,
             const std::vector<StageMemory>& memories, const Outcome& outcome,
             int64_t micro_batches, Plan& plan) {
  plan.prediction.throughput_samples_per_s =
      outcome.ns > 0 ? static_cast<double>(micro_batches) *
                           static_cast<double>(plan.micro_batch_size) * 1e9 / outcome.ns
                     : 0;
  plan.prediction.idle_share = std::clamp(outcome.idle_share, 0.0, 1.0);
  // The schedule knows no messages: each stage of a worker has its own buffers for them.
  const schedule::WorkerTable table(shape);
  std::vector<size_t> whole_stage;  // of each stage of the schedule
  for (size_t s = 0; s < plan.stages.size(); ++s)
    whole_stage.insert(whole_stage.end(), static_cast<size_t>(plan.stages[s].tensor), s);
  std::vector<int64_t> worker_bytes = outcome.peak_memory_bytes;
  for (size_t w = 0; w < worker_bytes.size(); ++w) {
    for (const auto& held : table.held_by(WorkerId{static_cast<int32_t>(w)})) {
      const size_t s = whole_stage[held.stage.index()];
      worker_bytes[w] =
          saturating_add(worker_bytes[w], message_bytes(context, split, plan, s, memories[s]));
    }
  }
  for (size_t w = 0; w < worker_bytes.size(); ++w) {
    for (const auto& held : table.held_by(WorkerId{static_cast<int32_t>(w)})) {
      int64_t& bytes = plan.stages[whole_stage[held.stage.index()]].memory_bytes;
      bytes = std::max(bytes, worker_bytes[w]);
    }
  }
}

// Some steps are enough to see what a micro-batch goes through once the pipeline is full.
int64_t latency_ns(const Simulated& simulation, const Plan& plan, int64_t micro_batches) {
  const int64_t steps = kLatencySteps * plan.micro_batches;
  const int64_t filled =
      simulation.written()
          ? steps
          : std::max(kLatencyPerStage * static_cast<int64_t>(plan.stages.size()), steps);
  const int64_t shorter =
      std::min(micro_batches, ceil_div(filled, plan.micro_batches) * plan.micro_batches);
  const MiddleSteps middle(simulation.of_length(shorter));
  const auto keeps = [&](const schedule::Action& action) { return middle.counts(action); };
  return mean_latency_ns(simulation.run(shorter, {.keep_timeline = true, .keeps = keeps}).timeline,
                         middle);
}

}  // namespace

void predict(const Context& context, const Split& split, const std::vector<int64_t>& cut_bytes,
             Plan& plan) {
  predict(context, split, stage_memories(context, split, cut_bytes), plan);
}

void predict(const Context& context, const Split& split, const std::vector<StageMemory>& memories,
             Plan& plan) {
  const Simulated simulation(context, split, plan);
  schedule::check_runs(split.strategy, simulation.shape, INT64_MAX);
  const int64_t micro_batches = simulated_micro_batches(context, plan, simulation.written());
  if (micro_batches == 0) {
    estimate(context, split, memories, plan);
    return;
  }
  const int64_t steps = micro_batches / plan.micro_batches;
  const int64_t run = simulation.written() ? steps_to_run(plan, steps) : steps;
  fill_in(context, split, simulation.shape, memories,
          repeated(simulation, plan.micro_batches, steps, run), micro_batches, plan);
  plan.prediction.latency_ns = latency_ns(simulation, plan, micro_batches);
}

void predict_roughly(const Context& context, const Split& split,
                     const std::vector<int64_t>& cut_bytes, Plan& plan) {
  const Simulated simulation(context, split, plan, context.time->share(1));
  schedule::check_runs(split.strategy, simulation.shape, INT64_MAX);
  const std::vector<StageMemory> memories = stage_memories(context, split, cut_bytes);
  const int64_t micro_batches = simulated_micro_batches(context, plan, simulation.written());
  if (micro_batches == 0) return estimate(context, split, memories, plan);
  const int64_t steps = std::max<int64_t>(micro_batches / plan.micro_batches, 2);
  fill_in(context, split, simulation.shape, memories,
          repeated(simulation, plan.micro_batches, steps, 2), steps * plan.micro_batches, plan);
}

}  // namespace penstock::planner
