// penstock simulate: runs a plan's schedule in simulated time.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "penstock/report/report.h"
#include "penstock/schedule/text_format.h"
#include "penstock/simulate/simulator.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/json.h"
#include "penstock/util/units.h"
#include "penstock/verify/verify.h"
#include "tools/penstock/command.h"
#include "tools/penstock/progress.h"
#include "tools/penstock/simulate_options.h"

namespace penstock::tool {

namespace {

/// A trace or a grid of more actions than this helps nobody, and a timeline takes 64 bytes for each.
constexpr int64_t kMaxDrawnActions = 1'000'000;
/// Shorter runs are over before a progress bar could be read.
constexpr int64_t kProgressFrom = 20'000'000;

void check_drawable(int64_t actions) {
  if (actions <= kMaxDrawnActions) return;
  throw ConfigError(
      fmt::format("--trace and --grid draw at most {} actions, this run has {}: use fewer --mini-batches", kMaxDrawnActions, actions));
}

simulate::Result simulate_file(const SimulateOptions& options, const plan::Plan& plan) {
  const schedule::Schedule schedule = schedule::parse_schedule(read_file(options.schedule), options.schedule);
  const auto violations = verify::verify(schedule);
  if (!violations.empty())
    throw ConfigError(fmt::format("{}: not sound ({}): {}", options.schedule, violations.front().rule, violations.front().message));
  const simulate::Options run = run_options(options);
  if (run.keep_timeline) check_drawable(schedule.num_actions());
  return simulate::simulate(schedule, simulate::costs_of(plan), run);
}

simulate::Result simulate_plan(const SimulateOptions& options, const plan::Plan& plan) {
  if (options.mini_batches < 1) throw ConfigError(fmt::format("--mini-batches must be at least 1, found {}", options.mini_batches));
  const schedule::LazySchedule schedule = simulate::lazy_schedule_of(plan, options.mini_batches);
  simulate::Options run = run_options(options);
  if (run.keep_timeline) check_drawable(schedule.num_actions());
  std::optional<ProgressBar> bar;
  if (schedule.num_actions() >= kProgressFrom) {
    bar.emplace("simulating");
    run.progress = [&bar](int64_t done, int64_t total) { bar->update(done, total, "actions"); };
  }
  return simulate::simulate(schedule, simulate::costs_of(plan), run);
}

Json json_of(const SimulateOptions& options, const plan::Plan& plan, const simulate::Result& result, int64_t peak_bytes) {
  return {{"makespan_ns", result.makespan_ns},
          {"idle_share", result.idle_share},
          {"throughput_samples_per_s", result.throughput_samples_per_s},
          {"peak_memory_bytes", peak_bytes},
          {"peak_memory_bytes_per_worker", result.peak_memory_bytes},
          {"micro_batches", result.micro_batches},
          {"strategy", plan.strategy},
          {"config", plan.config()},
          {"workers", result.peak_memory_bytes.size()},
          {"actions", result.num_actions},
          {"schedule_ns", result.schedule_ns},
          {"useful_share", result.useful_share},
          {"failures", result.num_failures},
          {"redone_ns", result.redone_ns},
          {"down_ns", result.down_ns},
          {"cost", result.cost},
          {"cost_per_sample", result.cost_per_sample},
          {"seed", options.seed}};
}

/// "1-1-1-1", or how many stages and workers where that would fill the screen.
std::string shown_config(const plan::Plan& plan) {
  constexpr size_t kMostStages = 32;
  if (plan.stages.size() <= kMostStages) return fmt::format("{} ({} workers)", plan.config(), plan.num_workers());
  return fmt::format("on {} stages ({} workers)", plan.stages.size(), plan.num_workers());
}

std::string text_of(const SimulateOptions& options, const plan::Plan& plan, const simulate::Result& result, int64_t peak_bytes) {
  std::string text =
      fmt::format("{} {}, {} micro-batches of {} samples, {} actions\n", plan.strategy, shown_config(plan), result.micro_batches,
                  plan.micro_batch_size, result.num_actions) +
      fmt::format("  makespan     {}\n  throughput   {:.1f} samples/s\n  idle         {:.1f} %\n  peak memory  {} on one worker\n",
                  format_duration(result.makespan_ns), result.throughput_samples_per_s, 100 * result.idle_share, format_bytes(peak_bytes));
  if (!options.mtbf.empty() || options.checkpoint_every > 0) {
    text += fmt::format("  useful       {:.1f} % of the workers' time\n  failures     {}: {} of work done again, {} down\n",
                        100 * result.useful_share, result.num_failures, format_duration(result.redone_ns), format_duration(result.down_ns));
  }
  if (options.price_per_worker_hour > 0) {
    text += fmt::format("  cost         {:.6g}, {:.6g} per sample\n", result.cost, result.cost_per_sample);
  }
  return text;
}

int run(const SimulateOptions& options) {
  refuse_standard_output("--trace", options.trace);
  const plan::Plan plan = plan::load_plan(options.plan);
  check_links(plan, options.profile);
  const simulate::Result result = options.schedule.empty() ? simulate_plan(options, plan) : simulate_file(options, plan);
  if (!options.trace.empty()) write_output(options.trace, report::chrome_trace({&result.timeline}));
  const int64_t peak_bytes =
      result.peak_memory_bytes.empty() ? 0 : *std::max_element(result.peak_memory_bytes.begin(), result.peak_memory_bytes.end());
  if (options.json) {
    write_output("", json_of(options, plan, result, peak_bytes).dump() + "\n");
    return kExitYes;
  }
  std::string text = text_of(options, plan, result, peak_bytes);
  if (options.grid) text += report::text_grid(result.timeline);
  if (!options.trace.empty()) text += fmt::format("  trace        {} (open it in ui.perfetto.dev)\n", options.trace);
  write_output("", text);
  return kExitYes;
}

}  // namespace

Command simulate_command(CLI::App& parent) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* app =
      parent.add_subcommand("simulate", "Run a plan in simulated time: throughput, idle share, memory, failures, cost, timeline");
  add_simulate_options(*app, *options);
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool
