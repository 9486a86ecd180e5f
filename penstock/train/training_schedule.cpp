#include "penstock/train/training_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/train/checkpoint/manifest.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/util/error.h"
#include "penstock/verify/verify.h"

namespace penstock::train {

namespace {

/// Messages per channel; a schedule that needs more gets more.
constexpr int64_t kLeastCredits = 4;

/// Forwards of workers that hold several stages, in ascending order of s + b. F(s, b) waits only
/// for forwards of b in earlier stages, which have a lower s + b, so there is no cycle of waits.
schedule::Schedule wave_of_forwards(const schedule::ScheduleShape& shape) {
  schedule::validate(shape);
  const schedule::WorkerTable table(shape);
  schedule::Schedule schedule{.kind = std::string(to_string(schedule::Strategy::ForwardOnly)),
                              .shape = shape,
                              .workers = {}};
  schedule.workers.resize(static_cast<size_t>(table.num_workers()));
  for (int64_t wave = 0; wave < shape.micro_batches + shape.num_stages() - 1; ++wave) {
    for (int s = shape.num_stages() - 1; s >= 0; --s) {
      const MicroBatchId b{wave - s};
      if (b.value < 0 || b.value >= shape.micro_batches) continue;
      const StageId stage{s};
      schedule.workers[table.worker_of(stage, b).index()].push_back(
          {.op = schedule::Op::Forward,
           .stage = stage,
           .micro_batch = b,
           .mini_batch = shape.mini_batch_of(b),
           .peer = stage});
    }
  }
  return schedule;
}

}  // namespace

schedule::ScheduleShape training_shape(const plan::Plan& plan, int64_t samples,
                                       int64_t mini_batch_size, bool global_norm) {
  const BatchCut cut(samples, mini_batch_size, plan.micro_batches);
  schedule::ScheduleShape shape = schedule::shape_of(plan, cut.num_mini_batches());
  // A mini-batch of few samples has fewer micro-batches than the plan, and so may the last one.
  shape.accumulate = cut.micro_batches;
  shape.micro_batches = cut.num_micro_batches();
  shape.global_norm = global_norm;
  return shape;
}

schedule::Schedule training_schedule(const plan::Plan& plan,
                                     const std::vector<schedule::StageLink>& links, int64_t samples,
                                     int64_t mini_batch_size, bool global_norm) {
  const schedule::ScheduleShape shape = training_shape(plan, samples, mini_batch_size, global_norm);
  return lower(with_teams(generate(plan.strategy, shape), plan.teams()), links);
}

TrainingOrder order_of_epoch(const TrainOptions& options, uint64_t seed, int64_t epoch) {
  const bool flushes = options.plan.weights == plan::WeightPolicy::Flush;
  return {.seed = seed,
          .epoch = epoch,
          .shuffle = options.shuffle,
          .lengths = options.lengths,
          .mini_batch_size = std::max<int64_t>(options.mini_batch_size, 1),
          .run = flushes ? 1 : kLengthRun,
          .streams = options.carry_state ? options.mini_batch_size : 0};
}

std::string lengths_name(const TrainOptions& options) {
  if (options.carry_state) return std::string(kStreams);
  std::string name(kLengths[static_cast<size_t>(options.lengths)]);
  const bool has_runs =
      options.lengths == Lengths::Bucketed && order_of_epoch(options, 0, 0).run > 1;
  return has_runs ? name + " in runs" : name;
}

schedule::Schedule evaluation_schedule(const plan::Plan& plan,
                                       const std::vector<schedule::StageLink>& links,
                                       int64_t micro_batches, int64_t accumulate) {
  const schedule::ScheduleShape shape{.replicas = plan.replicas(),
                                      .micro_batches = micro_batches,
                                      .accumulate = accumulate,
                                      .worker_of_replica = plan.worker_of_replica};
  const schedule::Schedule forwards = plan.worker_of_replica.empty()
                                          ? generate(schedule::Strategy::ForwardOnly, shape)
                                          : wave_of_forwards(shape);
  return lower(with_teams(forwards, plan.teams()), links);
}

int64_t check_schedule(const schedule::Schedule& schedule) {
  const int64_t credits = std::max(kLeastCredits, verify::min_credits(schedule));
  const auto violations = verify::verify(schedule, {.credits = credits, .max_violations = 1});
  if (!violations.empty()) {
    throw ConfigError(fmt::format("the schedule is not sound ({}): {}", violations.front().rule,
                                  violations.front().message));
  }
  return credits;
}

}  // namespace penstock::train
