#include "penstock/simulate/simulator.h"

#include <fmt/format.h>

#include <utility>

#include "penstock/simulate/costs.h"
#include "penstock/simulate/engine.h"
#include "penstock/simulate/sources.h"
#include "penstock/util/error.h"

namespace penstock::simulate {

namespace {

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

template <class Source>
Result simulate_source(const Source& source, const Costs& costs, const Options& options) {
  detail::Engine<Source> engine(source, costs, options);
  engine.run();
  detail::Workers<Source>& workers = engine.workers();

  Result result;
  result.timeline = std::move(workers.timeline());
  result.makespan_ns = workers.makespan_ns();
  result.peak_memory_bytes = workers.peak_memory_bytes();
  result.micro_batches = source.shape().micro_batches;
  result.num_actions = source.num_actions();
  if (result.makespan_ns == 0) return result;
  const auto makespan_ns = static_cast<double>(result.makespan_ns);
  const double samples = static_cast<double>(result.micro_batches) *
                         static_cast<double>(costs.samples_per_micro_batch);
  result.throughput_samples_per_s = samples * 1e9 / makespan_ns;
  result.idle_share = 1.0 - workers.busy_ns() / (static_cast<double>(workers.size()) * makespan_ns);
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
