// penstock simulate: runs a plan's schedule in simulated time.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "penstock/report/report.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/text_format.h"
#include "penstock/simulate/simulator.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/json.h"
#include "penstock/util/units.h"
#include "penstock/verify/verify.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  std::string plan;
  std::string schedule;
  int64_t mini_batches = 64;
  std::string trace;
  bool grid = false;
};

schedule::Schedule schedule_of(const Options& options, const plan::Plan& plan) {
  if (!options.schedule.empty()) {
    schedule::Schedule schedule = schedule::parse_schedule(read_file(options.schedule), options.schedule);
    const auto violations = verify::verify(schedule);
    if (!violations.empty())
      throw ConfigError(fmt::format("{}: not sound ({}): {}", options.schedule, violations.front().rule, violations.front().message));
    return schedule;
  }
  if (options.mini_batches < 1) throw ConfigError(fmt::format("--mini-batches must be at least 1, found {}", options.mini_batches));
  const schedule::Kind kind = schedule::parse_kind(plan.strategy);
  const schedule::ScheduleShape shape{
      .replicas = plan.replicas(),
      .micro_batches = saturating_mul(options.mini_batches, plan.micro_batches),
      .accumulate = plan.micro_batches,
      .policy = plan.weights.empty() ? schedule::default_policy(kind) : schedule::parse_weight_policy(plan.weights)};
  std::vector<schedule::StageLink> links;
  for (const plan::Link& link : plan.links) links.push_back({link.from, link.to});
  return schedule::lower(schedule::generate(kind, shape), links);
}

int run(const Options& options) {
  refuse_standard_output("--trace", options.trace);
  const plan::Plan plan = plan::load_plan(options.plan);
  const schedule::Schedule schedule = schedule_of(options, plan);
  const simulate::Result result = simulate::simulate(schedule, simulate::costs_of(plan));
  if (!options.trace.empty()) write_output(options.trace, report::chrome_trace({&result.timeline}));
  const int64_t peak =
      result.peak_memory_bytes.empty() ? 0 : *std::max_element(result.peak_memory_bytes.begin(), result.peak_memory_bytes.end());
  if (options.json) {
    const Json document{{"makespan_ns", result.makespan_ns},
                        {"idle_share", result.idle_share},
                        {"throughput_samples_per_s", result.throughput_samples_per_s},
                        {"peak_memory_bytes", peak},
                        {"peak_memory_bytes_per_worker", result.peak_memory_bytes},
                        {"micro_batches", result.micro_batches},
                        {"strategy", plan.strategy},
                        {"config", plan.config()}};
    write_output("", document.dump() + "\n");
    return kExitYes;
  }
  std::string text =
      fmt::format("{} {} ({} workers), {} micro-batches of {} samples\n", plan.strategy, plan.config(), plan.num_workers(),
                  result.micro_batches, plan.micro_batch_size) +
      fmt::format("  makespan     {}\n  throughput   {:.1f} samples/s\n  idle         {:.1f} %\n  peak memory  {} on one worker\n",
                  format_duration(result.makespan_ns), result.throughput_samples_per_s, 100 * result.idle_share, format_bytes(peak));
  if (options.grid) text += report::text_grid(result.timeline);
  if (!options.trace.empty()) text += fmt::format("  trace        {} (open it in ui.perfetto.dev)\n", options.trace);
  write_output("", text);
  return kExitYes;
}

}  // namespace

Command simulate_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("simulate", "Run a plan in simulated time: throughput, idle share, memory, timeline");
  app->add_option("--plan", options->plan, "Plan (penstock plan)")->required();
  app->add_option("--schedule", options->schedule, "Run this schedule (text form) with the plan's costs instead of the plan's own");
  app->add_option("--mini-batches", options->mini_batches, "Optimiser steps to simulate")->capture_default_str();
  app->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace to this file");
  app->add_flag("--grid", options->grid, "Draw the timeline as text");
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool
