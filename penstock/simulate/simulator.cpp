#include "penstock/simulate/simulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/simulate/costs.h"
#include "penstock/simulate/engine.h"
#include "penstock/simulate/failures.h"
#include "penstock/simulate/sources.h"
#include "penstock/util/error.h"

namespace penstock::simulate {

namespace {

constexpr double kNsPerHour = 3600e9;

void check_workers(int64_t workers) {
  if (workers <= kMaxSimulatedWorkers) return;
  throw ConfigError(fmt::format("the schedule has {} workers, at most {} are simulated", workers,
                                kMaxSimulatedWorkers));
}

void check_limits(const schedule::LazySchedule& schedule) {
  check_workers(schedule.shape().num_workers());
  if (schedule.num_actions() > kMaxSimulatedActions) {
    throw ConfigError(
        fmt::format("the schedule has {} actions, at most {} are simulated: use fewer mini-batches "
                    "or micro-batches",
                    schedule.num_actions(), kMaxSimulatedActions));
  }
}

void check_price(double price_per_worker_hour) {
  if (price_per_worker_hour >= 0 && price_per_worker_hour <= 1e12) return;
  throw ConfigError(fmt::format(
      "the price per worker and hour must be between 0 and 1e12, found {}", price_per_worker_hour));
}

template <class Source>
Result simulate_source(const Source& source, const Costs& costs, const Options& options) {
  detail::check_failures(options.failures);
  check_price(options.price_per_worker_hour);
  detail::Engine<Source> engine(source, costs, options);
  engine.run();

  const auto workers = static_cast<double>(source.table().num_workers());
  Result result;
  result.timeline = std::move(engine.timeline());
  result.schedule_ns = engine.makespan_ns();
  result.peak_memory_bytes = engine.peak_memory_bytes();
  result.micro_batches = source.shape().micro_batches;
  result.num_actions = source.num_actions();
  if (result.schedule_ns > 0)
    result.idle_share =
        1.0 - engine.busy_ns() / (workers * static_cast<double>(result.schedule_ns));

  const detail::FailureOutcome outcome =
      detail::with_failures(options.failures, options.seed, source.table().num_workers(),
                            result.schedule_ns, engine.finished_ns());
  result.makespan_ns = outcome.makespan_ns;
  result.num_failures = outcome.num_failures;
  result.redone_ns = outcome.redone_ns;
  result.down_ns = outcome.down_ns;
  const auto makespan_ns = static_cast<double>(result.makespan_ns);
  const double samples = static_cast<double>(result.micro_batches) *
                         static_cast<double>(costs.samples_per_micro_batch);
  if (result.makespan_ns > 0) {
    result.throughput_samples_per_s = samples * 1e9 / makespan_ns;
    result.useful_share = engine.busy_ns() / (workers * makespan_ns);
  }
  result.cost = workers * makespan_ns / kNsPerHour * options.price_per_worker_hour;
  if (samples > 0) result.cost_per_sample = result.cost / samples;
  return result;
}

}  // namespace

Result simulate(const schedule::Schedule& schedule, const Costs& costs, const Options& options) {
  // Each worker needs its own tables, even before its list is read.
  check_workers(static_cast<int64_t>(schedule.workers.size()));
  const detail::InMemorySource source(schedule);
  detail::check_costs(costs, schedule.shape.num_stages());
  return simulate_source(source, costs, options);
}

Result simulate(const schedule::Schedule& schedule, const Costs& costs) {
  return simulate(schedule, costs, {.keep_timeline = true});
}

Result simulate(const schedule::LazySchedule& schedule, const Costs& costs,
                const Options& options) {
  check_limits(schedule);
  detail::check_costs(costs, schedule.shape().num_stages());
  return simulate_source(detail::LazySource(schedule), costs, options);
}

}  // namespace penstock::simulate
