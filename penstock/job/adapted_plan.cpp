#include "penstock/job/adapted_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "penstock/plan/boundaries.h"
#include "penstock/plan/interval.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/expected_interval.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::job {

namespace {

void scale(plan::Plan& plan, int64_t micro_batch_size) {
  const double factor =
      static_cast<double>(micro_batch_size) / static_cast<double>(plan.micro_batch_size);
  const auto by_factor = [factor](int64_t& value) {
    value = nearest(static_cast<double>(value) * factor);
  };
  for (plan::Stage& stage : plan.stages) {
    by_factor(stage.forward_ns);
    by_factor(stage.backward_ns);
    by_factor(stage.backward_weight_ns);
    by_factor(stage.stash_bytes);
    by_factor(stage.working_bytes);
    if (stage.passes) {
      // The gradients of weights do not grow with the batch.
      for (int64_t* bytes :
           {&stage.passes->first_bytes, &stage.passes->last_bytes, &stage.passes->only_bytes}) {
        const int64_t fixed = std::min(stage.weight_bytes, *bytes);
        *bytes -= fixed;
        by_factor(*bytes);
        *bytes = saturating_add(*bytes, fixed);
      }
    }
    by_factor(stage.move_ns);
    by_factor(stage.team_bytes);
    for (plan::GradientBucket& bucket : stage.buckets) {
      by_factor(bucket.forward_ns);
      by_factor(bucket.backward_ns);
      by_factor(bucket.backward_weight_ns);
    }
  }
  for (plan::Link& link : plan.links) {
    by_factor(link.bytes);
    if (link.gradient_bytes) by_factor(*link.gradient_bytes);
  }
  plan.micro_batch_size = micro_batch_size;
  plan.prediction.compute_error = 0;  // what proportion costs is not known
}

/// One message each way over every link of a stage, and gradients of replicas elsewhere.
std::vector<int64_t> buffer_bytes(const plan::Plan& plan) {
  std::vector<int64_t> bytes;
  for (const plan::Stage& stage : plan.stages) bytes.push_back(stage.waiting_bytes);
  for (const plan::Link& link : plan.links) {
    for (const StageId stage : {link.from, link.to}) {
      int64_t& sum = bytes[stage.index()];
      sum = saturating_add(sum, saturating_mul(2, link.bytes));
    }
  }
  return bytes;
}

/// `peak_bytes`: by worker; members of a team are workers.
void set_memory(plan::Plan& plan, std::vector<int64_t> peak_bytes) {
  const schedule::ScheduleShape shape = schedule::member_shape_of(plan, 1);
  const schedule::WorkerTable workers(shape);
  const auto stage_of = [&shape](StageId member) {
    return schedule::place_in_team(shape, member).whole.index();
  };
  const std::vector<int64_t> buffers = buffer_bytes(plan);
  for (plan::Stage& stage : plan.stages) stage.memory_bytes = 0;
  for (size_t w = 0; w < peak_bytes.size(); ++w) {
    const auto held = workers.held_by(WorkerId{static_cast<int32_t>(w)});
    for (const auto& place : held)
      peak_bytes[w] = saturating_add(peak_bytes[w], buffers[stage_of(place.stage)]);
    for (const auto& place : held) {
      int64_t& bytes = plan.stages[stage_of(place.stage)].memory_bytes;
      bytes = std::max(bytes, peak_bytes[w]);
    }
  }
}

void predict_anew(plan::Plan& plan) {
  // Filling and draining stay small beside so many micro-batches.
  constexpr int64_t kMicroBatches = 256;
  const int64_t steps = std::max<int64_t>(2, ceil_div(kMicroBatches, plan.micro_batches));
  simulate::Result result = simulate::simulate_plan(plan, steps, {});
  plan.prediction.throughput_samples_per_s = result.throughput_samples_per_s;
  const plan::Interval interval =
      simulate::expected_interval(plan, plan.prediction.throughput_samples_per_s)
          .value_or(plan::Interval{});
  plan.prediction.throughput_low_samples_per_s = interval.low;
  plan.prediction.throughput_high_samples_per_s = interval.high;
  plan.prediction.idle_share = result.idle_share;
  set_memory(plan, std::move(result.peak_memory_bytes));
  plan.prediction.bottleneck_ns = nearest(report::PlanView(plan).bottleneck.time_ns);
  plan.prediction.latency_ns = 0;
  plan.prediction.bytes_per_sample.clear();
  plan.explanation.alternatives.clear();
  plan.explanation.notes.clear();
}

}  // namespace

plan::Plan adapted_plan(const plan::Plan& given, const PlanUse& use) {
  plan::Plan plan = given;
  // Nothing of what is predicted depends on it.
  for (plan::Stage& stage : plan.stages) stage.sequence |= use.sequence && stage.tensor > 1;
  const plan::Plan unchanged = plan;
  if (use.weights) {
    plan.weights = *use.weights;
    if (!supports(plan.strategy, plan.weights)) {
      throw ConfigError(fmt::format("the plan's strategy {} cannot run with --weights {}",
                                    to_string(plan.strategy), to_string(plan.weights)));
    }
  }
  plan.compensation = use.compensation.value_or(plan.compensation);
  if (use.boundaries) plan::take_boundaries(plan, *use.boundaries);
  for (plan::Stage& stage : plan.stages) {
    stage.shard_optimizer |= use.shard_optimizer && stage.replicas > 1;
    stage.shares_weights &= use.share_weights && plan.weights == plan::WeightPolicy::Flush;
  }
  plan.micro_batches = use.micro_batches.value_or(plan.micro_batches);
  plan.micro_batches = std::min(plan.micro_batches, use.mini_batch_size);
  const int64_t micro_batch_size = ceil_div(use.mini_batch_size, plan.micro_batches);
  const bool resized = micro_batch_size != plan.micro_batch_size;
  if (resized) scale(plan, micro_batch_size);
  if (plan == unchanged) return plan;
  validate(plan);
  predict_anew(plan);
  if (resized) {
    plan.explanation.notes.push_back(fmt::format(
        "Made for micro-batches of {}: times and sizes are scaled in proportion to those of {}.",
        report::plural(given.micro_batch_size, "sample"), micro_batch_size));
  }
  return plan;
}

}  // namespace penstock::job
