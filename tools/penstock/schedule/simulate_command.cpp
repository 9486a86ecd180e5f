// penstock simulate: runs a plan's schedule, or one from a file, in simulated time.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/boundaries.h"
#include "penstock/report/console/progress_bar.h"
#include "penstock/report/page/html_report.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/schedule/teams.h"
#include "penstock/simulate/expected_interval.h"
#include "penstock/simulate/simulate_plan.h"
#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/schedule/schedule_file.h"
#include "tools/penstock/schedule/simulate_options.h"

namespace penstock::tool {

namespace {

/// A trace or a grid of more actions than this helps nobody, and a timeline takes 64 bytes for
/// each.
constexpr int64_t kMaxDrawnActions = 1'000'000;
/// Shorter runs are over before a progress bar could be read.
constexpr int64_t kProgressFrom = 20'000'000;

/// Before anything is simulated or written.
void check_drawable(const SimulateOptions& options, int64_t actions, int64_t workers) {
  if (actions > kMaxDrawnActions) {
    throw ConfigError(fmt::format(
        "--trace, --html and --grid draw at most {} actions, this run has {}: {}", kMaxDrawnActions,
        actions,
        options.schedule.empty() ? "use fewer --mini-batches" : "give a shorter --schedule"));
  }
  if (!options.html.empty() && workers > static_cast<int64_t>(report::kMaxReportWorkers)) {
    throw ConfigError(fmt::format("--html draws at most {} workers, this run has {}",
                                  report::kMaxReportWorkers, workers));
  }
}

/// What has been simulated, in words and numbers for people.
struct Run {
  std::string strategy;
  std::string config;  ///< as Plan::config() writes it
  schedule::ScheduleShape shape;
  int64_t micro_batch_size = 1;
  simulate::Result result;
  std::optional<plan::Interval> interval = {};  ///< of the throughput, where it is known

  int64_t peak_bytes() const {
    const auto& peaks = result.peak_memory_bytes;
    return peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
  }
};

std::string config_of(const schedule::Schedule& schedule) {
  const std::vector<int>& teams = schedule.shape.teams;
  const schedule::ScheduleShape shape = schedule::without_teams(schedule.shape);
  plan::Plan plan;
  // A strategy that is not known (custom) has one pipeline, as serial has.
  plan.strategy = plan::find_strategy(schedule.kind).value_or(plan::Strategy::Serial);
  const auto replicas = std::accumulate(shape.replicas.begin(), shape.replicas.end(), int64_t{0});
  if (replicas > shape.num_workers() || teams.empty())
    plan.worker_of_replica = shape.worker_of_replica;
  for (size_t s = 0; s < shape.replicas.size(); ++s) {
    plan.stages.push_back({.layers = {}, .replicas = shape.replicas[s]});
    if (!teams.empty()) plan.stages.back().tensor = teams[s];
  }
  return plan.config();
}

/// Times that are too large stay at the largest number: nothing follows from them.
simulate::Result checked(simulate::Result result) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (result.makespan_ns == kMost) {
    throw ConfigError(
        "the simulated time passes 2^63 ns (292 years), which cannot be counted; expected a "
        "shorter run: shorter times, faster links, fewer micro-batches");
  }
  return result;
}

Run run_file(const SimulateOptions& options, const std::optional<plan::Plan>& plan) {
  const int64_t credits = options.credits >= 0 ? options.credits : simulate::Costs{}.credits;
  const schedule::Schedule schedule =
      read_schedule(options.schedule, plan ? &*plan : nullptr, credits);
  const simulate::Options run = run_options(options);
  if (run.keep_timeline)
    check_drawable(options, schedule.num_actions(), schedule.shape.num_workers());
  simulate::Costs costs = plan ? simulate::costs_of(*plan) : costs_of(options.costs, schedule);
  costs.credits = credits;
  costs.overlap = options.overlap;
  return {schedule.kind, config_of(schedule), schedule.shape, costs.samples_per_micro_batch,
          checked(simulate::simulate(schedule, costs, run))};
}

Run run_plan(const SimulateOptions& options, const plan::Plan& plan) {
  if (options.mini_batches < 1)
    throw ConfigError(
        fmt::format("--mini-batches must be at least 1, found {}", options.mini_batches));
  const simulate::PlannedSchedule schedule = simulate::planned_schedule(plan, options.mini_batches);
  simulate::Options run = run_options(options);
  if (run.keep_timeline)
    check_drawable(options, schedule.num_actions(), schedule.shape().num_workers());
  std::optional<report::ProgressBar> bar;
  if (schedule.num_actions() >= kProgressFrom) {
    bar.emplace("simulating");
    run.progress = [&bar](int64_t done, int64_t total) { bar->update(done, total, "actions"); };
  }
  simulate::Costs costs = simulate::costs_of(plan);
  if (options.credits >= 0) costs.credits = options.credits;
  costs.overlap = options.overlap;
  return {std::string(to_string(plan.strategy)), plan.config(), schedule.shape(),
          plan.micro_batch_size, checked(schedule.simulate(costs, run))};
}

Json json_of(const SimulateOptions& options, const Run& run) {
  const simulate::Result& result = run.result;
  return {
      {"makespan_ns", result.makespan_ns},
      {"idle_share", result.idle_share},
      {"throughput_samples_per_s", result.throughput_samples_per_s},
      {"throughput_low_samples_per_s", run.interval ? Json(run.interval->low) : Json(nullptr)},
      {"throughput_high_samples_per_s", run.interval ? Json(run.interval->high) : Json(nullptr)},
      {"peak_memory_bytes", run.peak_bytes()},
      {"peak_memory_bytes_per_worker", result.peak_memory_bytes},
      {"micro_batches", result.micro_batches},
      {"strategy", run.strategy},
      {"config", run.config},
      {"workers", result.peak_memory_bytes.size()},
      {"actions", result.num_actions},
      {"seed", options.seed}};
}

/// How far a run may be from what is simulated here. What the user makes of it, stragglers or a
/// spread, nobody has measured.
std::optional<plan::Interval> interval_of(const SimulateOptions& options, const plan::Plan& plan,
                                          const simulate::Result& result) {
  const bool is_changed =
      !options.stragglers.empty() || options.compute_spread > 0 || options.overlap > 0;
  if (is_changed) return std::nullopt;
  return simulate::expected_interval(plan, result.throughput_samples_per_s);
}

/// "1-1-1-1" or "4x2 chunks", or how many stages and workers where that would fill the screen.
std::string shown_config(const Run& run) {
  constexpr size_t kMostStages = 32;
  const size_t stages = run.shape.replicas.size();
  const bool is_short = stages <= kMostStages || !run.shape.worker_of_replica.empty();
  const std::string workers = report::plural(run.shape.num_workers(), "worker");
  if (is_short) return fmt::format("{} ({})", run.config, workers);
  return fmt::format("on {} stages ({})", stages, workers);
}

std::string text_of(const Run& run) {
  const simulate::Result& result = run.result;
  return fmt::format("{} {}, {} of {}, {}\n", run.strategy, shown_config(run),
                     report::plural(result.micro_batches, "micro-batch"),
                     report::plural(run.micro_batch_size, "sample"),
                     report::plural(result.num_actions, "action")) +
         fmt::format(
             "  makespan     {}\n  throughput   {} samples/s{}\n  idle         "
             "{:.1f} %\n  peak memory  {} on one worker\n",
             format_duration(result.makespan_ns), format_rate(result.throughput_samples_per_s),
             run.interval ? ", " + run.interval->text() : "", 100 * result.idle_share,
             format_bytes(run.peak_bytes()));
}

int run_simulate(const SimulateOptions& options) {
  check_options(options);
  std::optional<plan::Plan> plan;
  if (!options.precision.empty() && options.plan.empty())
    throw ConfigError("--precision is that of a plan: expected --plan");
  if (!options.plan.empty()) {
    plan = plan::load_plan(options.plan);
    if (!options.precision.empty() && parse_precision(options.precision) != plan->precision) {
      throw ConfigError(fmt::format("{} was made for {}, --precision is {}", options.plan,
                                    to_string(plan->precision), options.precision));
    }
    check_links(*plan, options.profile);
    if (!options.boundary.empty())
      plan::set_boundaries(*plan, plan::parse_boundary(options.boundary));
  }
  Run run = options.schedule.empty() ? run_plan(options, *plan) : run_file(options, plan);
  if (plan && options.schedule.empty()) run.interval = interval_of(options, *plan, run.result);
  const simulate::Result& result = run.result;
  std::string page;
  if (!options.html.empty()) {
    page = report::html_report({.plan = *plan,
                                .timelines = {result.timeline},
                                .peak_memory_bytes = result.peak_memory_bytes});
  }
  // Not lost when the trace cannot be written.
  if (!options.html.empty()) write_output(options.html, page);
  if (!options.trace.empty())
    write_output(options.trace, schedule::chrome_trace({&result.timeline}, run.shape.teams));
  if (options.json) {
    write_output("", json_of(options, run).dump() + "\n");
    return kExitYes;
  }
  std::string text = text_of(run);
  if (options.grid) text += report::text_grid(result.timeline);
  if (!options.trace.empty())
    text += fmt::format("  trace        {} (open it in ui.perfetto.dev)\n", options.trace);
  if (!options.html.empty()) text += fmt::format("  page         {}\n", options.html);
  write_output("", text);
  return kExitYes;
}

}  // namespace

Command simulate_command(CLI::App& parent) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* app = parent.add_subcommand("simulate",
                                        "Run a plan or a schedule in simulated time: throughput, "
                                        "idle share, memory, timeline");
  add_simulate_options(*app, *options);
  add_common(*app, *options);
  return {app, [options]() { return run_simulate(*options); }};
}

}  // namespace penstock::tool
