// penstock plan: finds the best split of a profiled model over a cluster, and explains it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/model/optimizer_spec.h"
#include "penstock/options/check_profile.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/pytorch_split.h"
#include "penstock/planner/sync_prices.h"
#include "penstock/planner/what_if.h"
#include "penstock/report/page/html_report.h"
#include "penstock/report/plan/family_rows.h"
#include "penstock/report/report.h"
#include "penstock/report/text/table.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/util/error.h"
#include "penstock/util/format_rate.h"
#include "penstock/util/json.h"
#include "penstock/util/units.h"
#include "tools/penstock/command.h"
#include "tools/penstock/output_files.h"
#include "tools/penstock/precision_option.h"
#include "tools/penstock/spinner.h"

namespace penstock::tool {

namespace {

struct PlanOptions : CommonOptions {
  std::string profile;
  std::string cluster;
  std::optional<int64_t> workers;
  std::string bandwidth;
  std::string latency;
  std::string memory_limit;
  std::string precision;  ///< empty: the profile's
  std::string optimizer = "sgd";
  std::string time_limit = "10s";
  planner::PlanOptions plan{.offload = planner::Choice::Auto,
                            .shard_optimizer = planner::Choice::Auto};
  std::string strategy = "auto";
  bool what_if = false;
  std::string price;
  std::vector<CLI::Option*> not_when_pricing;
  std::string output;
  std::string format = "penstock";
  std::string html;
};

/// A number without its unit counts bytes: most likely a slip.
void warn_if_small(const std::string& option, const std::string& text, int64_t value,
                   const char* per, const char* example) {
  constexpr int64_t kSmall = 1'000'000;
  const bool has_unit = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back())) != 0;
  if (value >= kSmall || has_unit) return;
  std::cerr << fmt::format("warning: {} {} is {}{}; with a unit: {}\n", option, text,
                           format_bytes(value), per, example);
}

cluster::Cluster local_cluster_of(const PlanOptions& options, const profile::Profile& profile) {
  if (*options.workers < 1 || *options.workers > planner::kMaxPlannedWorkers) {
    throw ConfigError(
        fmt::format("expected --workers of at least 1 and at most {}, found --workers {}",
                    planner::kMaxPlannedWorkers, *options.workers));
  }
  if (profile.copy_bandwidth_bytes_per_s < 1 && options.bandwidth.empty()) {
    throw ConfigError(fmt::format(
        "--workers alone plans for threads of the machine that the profile was measured "
        "on, and {} does not say how fast threads add gradients there: add the speed "
        "of the links between workers (e.g. --bandwidth 10Gbps), or give a --cluster "
        "file instead of --workers",
        options.profile));
  }
  cluster::Cluster result = cluster::local_cluster(
      static_cast<int>(*options.workers), std::max<int64_t>(profile.copy_bandwidth_bytes_per_s, 1));
  result.levels.front().latency_ns = profile.hand_over_ns;
  if (!options.bandwidth.empty()) {
    result.levels.front().bandwidth_bytes_per_s =
        parse_option("--bandwidth", options.bandwidth, parse_bandwidth);
    result.levels.front().by_reference = false;
    warn_if_small("--bandwidth", options.bandwidth, result.levels.front().bandwidth_bytes_per_s,
                  " per second", "10Gbps");
  }
  if (!options.latency.empty())
    result.levels.front().latency_ns = parse_option("--latency", options.latency, parse_duration);
  return result;
}

cluster::Cluster cluster_of(const PlanOptions& options, const profile::Profile& profile,
                            const std::optional<plan::Plan>& priced) {
  if (!options.cluster.empty()) return cluster::load_cluster(options.cluster);
  if (options.workers) return local_cluster_of(options, profile);
  if (priced) return priced->cluster;
  throw ConfigError(fmt::format("give --cluster FILE, or --workers N with at most {}",
                                planner::kMaxPlannedWorkers));
}

double optimizer_state_of(const std::string& optimizer) {
  const model::OptimizerKind kind = parse_option("--optimizer:", optimizer, model::parse_optimizer);
  return static_cast<double>(model::num_states({.kind = kind}));
}

void check_files(const PlanOptions& options) {
  check_outputs(
      {{"--output", options.output}, {"--html", options.html}},
      {{"--profile", options.profile}, {"--cluster", options.cluster}, {"--price", options.price}});
}

/// What torch.distributed.pipelining needs of a plan: FILE.json with the split, FILE.csv with the
/// schedule of one step.
struct ForPytorch {
  std::string path;
  std::string schedule_path;
};

ForPytorch pytorch_files(const PlanOptions& options) {
  if (options.output.empty() || is_standard_output(options.output)) {
    throw ConfigError(
        "--format pytorch writes two files, the split and the schedule: give --output FILE.json");
  }
  std::string stem = options.output;
  if (stem.ends_with(".csv")) {
    throw ConfigError(fmt::format(
        "--format pytorch writes the split as JSON, and the schedule beside it as CSV: expected "
        "--output FILE.json, found {}",
        options.output));
  }
  if (stem.ends_with(".json")) stem.resize(stem.size() - 5);
  return {options.output, stem + ".csv"};
}

Json pytorch_json(const planner::PytorchSplit& split, const plan::Plan& plan,
                  const ForPytorch& files) {
  Json document{{"format", "penstock-pytorch-split"}, {"version", 1}, {"model", plan.model}};
  document["split_spec"] = Json::object();
  document["moved"] = Json::array();
  for (const planner::PytorchCut& cut : split.cuts) {
    document["split_spec"][cut.module] = "beginning";
    document["moved"].push_back(cut.moved);
  }
  document["stages"] = Json::array();
  for (const plan::Stage& stage : split.plan.stages) document["stages"].push_back(stage.layers);
  const size_t slash = files.schedule_path.rfind('/');
  document["schedule"] = files.schedule_path.substr(slash == std::string::npos ? 0 : slash + 1);
  document["micro_batches"] = plan.micro_batches;
  document["throughput_samples_per_s"] = split.plan.prediction.throughput_samples_per_s;
  document["plan_throughput_samples_per_s"] = plan.prediction.throughput_samples_per_s;
  return document;
}

std::string pytorch_text(const planner::PytorchSplit& split, const plan::Plan& plan) {
  report::Table table({{"stage"}, {"begins with", report::Align::Left}, {"layers"}, {"moved"}});
  for (size_t s = 0; s < split.plan.stages.size(); ++s) {
    const int moved = s == 0 ? 0 : split.cuts[s - 1].moved;
    table.add({fmt::to_string(s), s == 0 ? "the inputs" : split.cuts[s - 1].module,
               fmt::to_string(split.plan.stages[s].layers.size()),
               moved == 0 ? ""
                          : fmt::format("{} by {}", moved > 0 ? "later" : "earlier",
                                        report::plural(std::abs(moved), "layer"))});
  }
  const double share =
      split.plan.prediction.throughput_samples_per_s / plan.prediction.throughput_samples_per_s;
  return fmt::format(
      "\nfor torch.distributed.pipelining, which cuts before submodules only\n{}  predicted {:.1f} "
      "samples/s, {:.1f} % of the plan's own cuts\n",
      table.text(2), split.plan.prediction.throughput_samples_per_s, 100 * share);
}

/// The schedule of one step, compute only: PyTorch adds the messages.
planner::PytorchSplit split_for_pytorch(const plan::Plan& plan, const profile::Profile& profile,
                                        const cluster::Cluster& cluster) {
  try {
    return planner::pytorch_split(plan, profile, cluster);
  } catch (const planner::NotForPytorch& no) {
    throw NoAnswer(no.what());
  }
}

std::string pytorch_schedule(const plan::Plan& plan) {
  schedule::ScheduleShape shape = schedule::shape_of(plan, 1);
  return schedule::to_pytorch_csv(schedule::generate(plan.strategy, shape));
}

void check_price(const PlanOptions& options) {
  if (options.price.empty()) return;
  for (const CLI::Option* option : options.not_when_pricing) {
    if (option->count() == 0) continue;
    throw ConfigError(fmt::format("--price takes the plan as it is and cannot be combined with {}",
                                  option->get_name()));
  }
}

Json what_if_json(const std::vector<plan::WhatIfResult>& changes) {
  Json list = Json::array();
  for (const plan::WhatIfResult& change : changes) {
    Json entry{{"change", change.change}, {"feasible", change.feasible}};
    if (!change.feasible) {
      entry["reason"] = change.reason;
    } else {
      entry["strategy"] = to_string(change.strategy);
      entry["config"] = change.config;
      entry["throughput_samples_per_s"] = change.throughput_samples_per_s;
      entry["speedup"] = change.speedup;
      entry["memory_bytes"] = change.memory_bytes;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json sync_json(const std::vector<planner::SyncPrice>& prices) {
  Json list = Json::array();
  for (const planner::SyncPrice& price : prices) {
    list.push_back({{"sync", to_string(price.sync)},
                    {"throughput_samples_per_s", price.throughput_samples_per_s},
                    {"sync_ns", price.sync_ns},
                    {"wait_ns", price.wait_ns},
                    {"processor_ns", price.processor_ns}});
    if (!price.inside) continue;
    Json& inside = list.back()["inside_machine"];
    inside["way"] = to_string(price.inside->way);
    inside["ns_per_byte"] = price.inside->ns();
    inside["network_card_share"] = price.inside->card_share;
    if (price.inside->root >= 0) inside["root"] = price.inside->root;
  }
  return list;
}

std::string inside_text(const plan::MachineSum& inside) {
  switch (inside.way) {
    case plan::MachineWay::Ring:
      return "around a ring of its devices";
    case plan::MachineWay::CpuAssisted:
      return "under each PCIe switch, then by the CPU";
    case plan::MachineWay::Nvlink:
      return "over NVLink, each device its part";
    case plan::MachineWay::NvlinkRoot:
      return fmt::format("over NVLink to device {}, which alone exchanges with the host",
                         inside.root);
  }
  return "";
}

std::string sync_table(const std::vector<planner::SyncPrice>& prices, plan::GradientSync chosen) {
  const bool takes_time =
      std::any_of(prices.begin(), prices.end(),
                  [](const planner::SyncPrice& price) { return price.processor_ns > 0; });
  std::vector<report::Column> columns{
      {"method", report::Align::Left}, {"samples/s"}, {"sum"}, {"not hidden"}};
  if (takes_time) columns.push_back({"processor time"});
  report::Table table(std::move(columns));
  for (const planner::SyncPrice& price : prices) {
    const std::string name(to_string(price.sync));
    std::vector<std::string> cells{name + (price.sync == chosen ? " *" : ""),
                                   format_rate(price.throughput_samples_per_s),
                                   format_duration(price.sync_ns), format_duration(price.wait_ns)};
    if (takes_time) cells.push_back(format_duration(price.processor_ns));
    table.add(std::move(cells));
  }
  std::string text = table.text(2);
  for (const planner::SyncPrice& price : prices) {
    if (price.inside)
      text += fmt::format("  {} inside a machine: {}\n", to_string(price.sync),
                          inside_text(*price.inside));
  }
  return text;
}

std::string tables(const PlanOptions& options, const plan::Plan& plan,
                   const std::vector<planner::SyncPrice>& prices,
                   const std::vector<plan::WhatIfResult>& changes) {
  plan::Plan shown = plan;
  if (options.plan.compare) {
    shown.explanation.notes = report::other_notes(plan);  // below the table of all families
    shown.explanation.alternatives.clear();
  }
  std::string text = report::plan_table(shown, options.plan.memory_limit_bytes);
  if (options.plan.compare) text += "\nall families\n" + report::compare_table(plan);
  if (!prices.empty())
    text += fmt::format("\nways to add gradients (--sync){}, with this split\n{}",
                        plan.gradient_precision == FloatType::Float32
                            ? ""
                            : fmt::format(" in {}", to_string(plan.gradient_precision)),
                        sync_table(prices, plan.sync));
  if (options.what_if) text += "\n" + report::what_if_table(changes);
  return text;
}

int say_no(const PlanOptions& options, const std::string& reason) {
  if (options.json) write_output("", Json{{"ok", false}, {"reason", reason}}.dump() + "\n");
  std::cerr << "penstock: no plan: " << reason << '\n';
  return kExitNo;
}

void check_schedule_options(PlanOptions& options) {
  const planner::PlanOptions& plan = options.plan;
  options.plan.strategy = plan::parse_strategy_choice(options.strategy);
  plan::check_schedule_options(plan.strategy, plan.chunks, plan.slack, plan.keep);
}

int run_plan(PlanOptions& options) {
  check_files(options);
  const bool for_pytorch = options.format == "pytorch";
  const ForPytorch pytorch = for_pytorch ? pytorch_files(options) : ForPytorch{};
  check_price(options);
  check_schedule_options(options);
  options.plan.optimizer_state_per_weight = optimizer_state_of(options.optimizer);
  if (!options.memory_limit.empty()) {
    options.plan.memory_limit_bytes =
        parse_option("--memory-limit", options.memory_limit, parse_bytes);
    if (options.plan.memory_limit_bytes == 0)
      std::cerr << "warning: --memory-limit 0 means no limit\n";
    else
      warn_if_small("--memory-limit", options.memory_limit, options.plan.memory_limit_bytes, "",
                    "16GB");
  }
  options.plan.time_limit =
      std::chrono::nanoseconds(parse_option("--time-limit", options.time_limit, parse_duration));
  if (options.plan.time_limit.count() > 0 &&
      options.plan.time_limit < std::chrono::milliseconds(1)) {
    throw ConfigError(
        fmt::format("--time-limit expected at least 1 ms, such as 10s or 2min, or 0 for none, "
                    "found '{}', which "
                    "is {}",
                    options.time_limit, format_duration(options.plan.time_limit.count())));
  }
  const profile::Profile profile = profile::load_profile(options.profile);
  if (!options.precision.empty())
    options::check_precision(profile, parse_precision(options.precision), options.profile);
  options.plan.global_norm = options.plan.global_norm || scales_loss(profile.precision);
  std::optional<plan::Plan> priced;
  if (!options.price.empty()) priced = plan::load_plan(options.price);
  if (priced && priced->precision != profile.precision) {
    throw ConfigError(fmt::format(
        "{} was made for {}, {} was measured in {}: expected the same precision", options.price,
        to_string(priced->precision), options.profile, to_string(profile.precision)));
  }
  const cluster::Cluster cluster = cluster_of(options, profile, priced);

  planner::PlanResult result;
  std::vector<plan::WhatIfResult> changes;
  {
    Spinner spinner("planning for " + report::plural(cluster.num_workers(), "worker"));
    if (priced) {
      result.plan = planner::reprice(*priced, profile, cluster, options.plan.cost_model,
                                     options.plan.global_norm);
    } else {
      result = planner::make_plan(profile, cluster, options.plan);
    }
    if (result.plan && options.what_if) {
      changes =
          planner::what_if(profile, cluster, options.plan, *result.plan, [&](int done, int total) {
            spinner.detail(fmt::format("what if, {} of {}", done, total));
          });
    }
  }
  if (!result.plan) return say_no(options, result.reason);

  const std::vector<planner::SyncPrice> prices =
      planner::sync_prices(profile, cluster, *result.plan, options.plan.global_norm);
  Json document = parse_json(plan::to_json(*result.plan), "plan");
  if (options.what_if) document["what_if"] = what_if_json(changes);
  std::string pytorch_table;
  if (for_pytorch) {
    const planner::PytorchSplit split = split_for_pytorch(*result.plan, profile, cluster);
    const Json split_document = pytorch_json(split, *result.plan, pytorch);
    write_output(pytorch.schedule_path, pytorch_schedule(split.plan));
    write_output(pytorch.path, to_text(split_document));
    document["pytorch"] = split_document;
    pytorch_table = pytorch_text(split, *result.plan);
  } else if (!options.output.empty()) {
    write_output(options.output, to_text(document));
  }
  if (!options.html.empty())
    write_output(options.html,
                 report::html_report({.plan = *result.plan,
                                      .changes = changes,
                                      .memory_limit_bytes = options.plan.memory_limit_bytes}));
  if (options.json && !prices.empty()) document["sync_methods"] = sync_json(prices);
  write_output("", options.json ? document.dump() + "\n"
                                : tables(options, *result.plan, prices, changes) + pytorch_table);
  return kExitYes;
}

void add_input(CLI::App& app, PlanOptions& options) {
  app.add_option("--profile", options.profile,
                 "Profile (penstock profile, or PipeDream's graph.txt)")
      ->required();
  add_precision(
      app, options.precision,
      "The precision that the profile must have been measured in (default: any; the plan has the "
      "profile's)");
  auto* cluster = app.add_option("--cluster", options.cluster, "Cluster file (TOML)");
  auto* workers =
      app.add_option("--workers", options.workers,
                     fmt::format("Threads of this machine, at most {}, instead of a cluster file",
                                 planner::kMaxPlannedWorkers));
  cluster->excludes(workers);
  app.add_option("--bandwidth", options.bandwidth,
                 "With --workers: links of this speed between them, e.g. 10Gbps")
      ->needs(workers);
  app.add_option("--latency", options.latency, "With --workers: latency of a message, e.g. 20us")
      ->needs(workers);
  app.add_option("--memory-limit", options.memory_limit,
                 "Memory per worker, e.g. 16GB (default: that of the cluster's devices)");
  app.add_option("--cost-model", options.plan.cost_model,
                 fmt::format("{}", fmt::join(planner::cost_model_names(), ", ")))
      ->capture_default_str();
}

planner::Choice parse_choice(std::string_view name) {
  if (name == "never") return planner::Choice::Never;
  if (name == "auto") return planner::Choice::Auto;
  if (name == "always") return planner::Choice::Always;
  throw ConfigError(
      fmt::format("unknown choice '{}', expected never, always or auto", name.substr(0, 40)));
}

void add_choices(CLI::App& app, PlanOptions& options) {
  const auto choice = [&](const char* name, auto& value, const std::string& text) {
    options.not_when_pricing.push_back(app.add_option(name, value, text));
    return options.not_when_pricing.back();
  };
  const auto named = [&](const char* name, auto& value, auto parse, const std::string& text) {
    options.not_when_pricing.push_back(add_named(app, name, value, parse, text));
    return options.not_when_pricing.back();
  };
  choice("--strategy", options.strategy, "auto, or " + plan::names_of(plan::training_strategies()))
      ->capture_default_str();
  named("--weights", options.plan.weights, plan::parse_weight_policy,
        "Weight policy: flush, stash, vertical-sync, 2bw, latest, current");
  named(
      "--sync", options.plan.sync, plan::parse_sync_choice,
      "How replicas sum their gradients: ordered, ring, parameter-server, summation, hierarchical "
      "(first inside each machine), asynchronous, or auto: the fastest of the others (ring and "
      "hierarchical change results by rounding)")
      ->default_str("ordered");
  named("--sync-precision", options.plan.gradient_precision, plan::parse_sync_precision,
        "Numbers in which gradients travel between replicas: float32, bfloat16, float16")
      ->default_str("float32");
  named("--recompute", options.plan.recompute, parse_choice,
        "Recompute activations instead of keeping them: never, always, auto (only if memory "
        "requires it)")
      ->default_str("auto");
  named("--offload", options.plan.offload, parse_choice,
        "Move activations to the memory of the host and back instead of keeping them, on devices "
        "with a host_bandwidth: never, always, auto (instead of recomputing, where it is faster)")
      ->default_str("auto");
  named("--shard-optimizer", options.plan.shard_optimizer, parse_choice,
        "Share out the optimiser's state over the replicas of a stage (ZeRO-1): never, always, "
        "auto (only if memory requires it)")
      ->default_str("auto");
  choice("--optimizer", options.optimizer,
         "sgd, adam or adamw: the optimiser whose state takes memory")
      ->capture_default_str();
  choice("--micro-batches", options.plan.micro_batches,
         "Micro-batches per optimiser step (default: chosen)");
  choice("--mini-batch", options.plan.mini_batch,
         "Maximum samples per optimiser step (default: no maximum)");
  choice("--chunks", options.plan.chunks,
         "interleaved, interleaved-zb: stages per worker (default: chosen from 2, 3 and 4)");
  choice("--slack", options.plan.slack,
         "eager-1f1b: extra micro-batches in flight per later stage, compared with 1F1B (default: "
         "chosen from 1, 2, 4, 8)");
  choice("--keep", options.plan.keep,
         "zb-auto, zb-auto-v: micro-batches that a worker keeps at most from F to W, summed over "
         "its stages (default: 2p-1 and 2p, less where memory asks for it)");
  choice("--gradient-groups", options.plan.gradient_groups,
         "Groups in which plans that flush sum gradients, at least (train has the same option): "
         "each takes memory (default: one per replica is counted)");
  options.not_when_pricing.push_back(
      app.add_flag("--straight", options.plan.straight, "One worker per stage"));
  options.not_when_pricing.push_back(
      app.add_flag("--all-workers", options.plan.use_all_workers, "Use all workers"));
  app.add_option("--time-limit", options.time_limit,
                 "End the search after this time with the best plan found and its gap, e.g. 1min; "
                 "0: search to the end. Pricing may take 2 s more, --what-if as long again")
      ->capture_default_str();
  app.add_flag("--norm", options.plan.global_norm,
               "Wait for the global gradient norm before each step (for clipping)");
}

void add_explanation(CLI::App& app, PlanOptions& options) {
  options.not_when_pricing.push_back(app.add_flag(
      "--compare", options.plan.compare,
      "Compare all families of strategies in one table, with the winner and the reason"));
  options.not_when_pricing.push_back(
      app.add_flag("--what-if", options.what_if,
                   "Show the effect of more workers, faster links and other memory sizes; runs the "
                   "planner about ten times"));
  app.add_option("--price", options.price,
                 "Do not search: predict the cost of this plan (JSON) with the profile, cluster "
                 "(default: the plan's own) and cost model");
  app.add_option("-o,--output", options.output, "File to write the plan to (JSON)");
  app.add_option("--format", options.format,
                 "penstock, or pytorch: --output is a split specification for "
                 "torch.distributed.pipelining, and beside it lies the schedule (.csv)")
      ->check(CLI::IsMember({"penstock", "pytorch"}))
      ->capture_default_str();
  app.add_option(
      "--html", options.html,
      "File to write an HTML page about the plan to: picture, tables, notes; needs no network");
}

}  // namespace

Command plan_command(CLI::App& parent) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* app = parent.add_subcommand(
      "plan", "Find the best split of a profiled model over workers, and explain it");
  add_input(*app, *options);
  add_choices(*app, *options);
  add_explanation(*app, *options);
  app->footer(
      "Exit codes: 0 a plan, 1 no plan fits (the reason is on standard error), 2 bad input, 3 "
      "failure.\ndocs/plans.md says how to read a plan.");
  add_common(*app, *options);
  return {app, [options]() { return run_plan(*options); }};
}

}  // namespace penstock::tool
