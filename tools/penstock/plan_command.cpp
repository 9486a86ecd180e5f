// penstock plan: finds the best split of a profiled model over a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "penstock/planner/planner.h"
#include "penstock/report/report.h"
#include "penstock/util/error.h"
#include "penstock/util/json.h"
#include "penstock/util/units.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  std::string profile;
  std::string cluster;
  int64_t workers = 0;
  std::string bandwidth;
  std::string latency;
  std::string memory_limit;
  planner::PlanOptions plan;
  std::string output;
};

cluster::Cluster cluster_of(const Options& options, const profile::Profile& profile) {
  if (!options.cluster.empty()) return cluster::load_cluster(options.cluster);
  if (options.workers < 1 || options.workers > 10'000'000) {
    throw ConfigError(fmt::format("give --cluster FILE or --workers N (1 to 10000000); found --workers {}", options.workers));
  }
  if (profile.copy_bandwidth_bytes_per_s < 1 && options.bandwidth.empty()) {
    throw ConfigError(fmt::format(
        "{} does not say how fast its device sums gradients: give --bandwidth with --workers, or a --cluster file", options.profile));
  }
  cluster::Cluster result =
      cluster::local_cluster(static_cast<int>(options.workers), std::max<int64_t>(profile.copy_bandwidth_bytes_per_s, 1));
  if (!options.bandwidth.empty()) {
    result.levels.front().bandwidth_bytes_per_s = parse_option("--bandwidth", options.bandwidth, parse_bandwidth);
    result.levels.front().by_reference = false;
  }
  if (!options.latency.empty()) result.levels.front().latency_ns = parse_option("--latency", options.latency, parse_duration);
  return result;
}

int run(Options& options) {
  refuse_standard_output("--output", options.output);
  const profile::Profile profile = profile::load_profile(options.profile);
  if (!options.memory_limit.empty()) options.plan.memory_limit_bytes = parse_option("--memory-limit", options.memory_limit, parse_bytes);
  const planner::PlanResult result = planner::make_plan(profile, cluster_of(options, profile), options.plan);
  if (!result.plan) {
    if (options.json) write_output("", Json{{"ok", false}, {"reason", result.reason}}.dump() + "\n");
    std::cerr << "penstock: no plan: " << result.reason << '\n';
    return kExitNo;
  }
  const std::string document = plan::to_json(*result.plan);
  if (!options.output.empty()) write_output(options.output, document);
  write_output("", options.json ? parse_json(document, "plan").dump() + "\n" : report::plan_table(*result.plan));
  return kExitYes;
}

}  // namespace

Command plan_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("plan", "Find the best split of a profiled model over workers");
  app->add_option("--profile", options->profile, "Profile (penstock profile, or PipeDream's graph.txt)")->required();
  auto* cluster = app->add_option("--cluster", options->cluster, "Cluster file (TOML)");
  auto* workers = app->add_option("--workers", options->workers, "Threads of this machine, instead of a cluster file");
  cluster->excludes(workers);
  app->add_option("--bandwidth", options->bandwidth, "With --workers: links of this speed between them, e.g. 10Gbps")->needs(workers);
  app->add_option("--latency", options->latency, "With --workers: latency of a message, e.g. 20us")->needs(workers);
  app->add_option("--strategy", options->plan.strategy, "auto, or a kind: serial, dp, mp, gpipe, 1f1b, 1f1b-flush, 2bw")
      ->capture_default_str();
  app->add_option("--weights", options->plan.weights, "Weight policy: flush, stash, vertical-sync, 2bw, latest");
  app->add_option("--cost-model", options->plan.cost_model, "penstock, sosp2019")->capture_default_str();
  app->add_flag("--straight", options->plan.straight, "One worker per stage");
  app->add_option("--micro-batches", options->plan.micro_batches, "Micro-batches per optimiser step (default: chosen)");
  app->add_option("--memory-limit", options->memory_limit, "Memory per worker, e.g. 16GB");
  app->add_option("-o,--output", options->output, "File to write the plan to (JSON)");
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool
