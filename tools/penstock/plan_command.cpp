// penstock plan: finds the best split of a profiled model over a cluster, and explains it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/options/check_profile.h"
#include "penstock/options/search_request.h"
#include "penstock/plan/low_rank.h"
#include "penstock/planner/cost/cost_model.h"
#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/planner.h"
#include "penstock/planner/pytorch_split.h"
#include "penstock/planner/sync_prices.h"
#include "penstock/planner/what_if.h"
#include "penstock/report/page/html_report.h"
#include "penstock/report/plan/family_rows.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/output_files.h"
#include "tools/penstock/command/precision_option.h"
#include "tools/penstock/command/row_options.h"
#include "tools/penstock/command/spinner.h"
#include "tools/penstock/machines_plan.h"
#include "tools/penstock/plan_tables.h"

namespace penstock::tool {

namespace {

/// Per micro-batch.
constexpr int64_t kMostSamples = 1'000'000;

struct PlanArguments : CommonOptions {
  options::SearchRequest search;
  std::string profile;
  std::string cluster;
  std::string machines;
  std::optional<int64_t> workers;
  std::string bandwidth;
  std::string latency;
  std::string memory_limit;
  std::string precision;              ///< empty: the profile's
  std::optional<int64_t> batch_size;  ///< of a profile that does not say it
  bool what_if = false;
  std::string price;  ///< a plan; empty: search for one
  std::string output;
  std::string format = "penstock";
  std::string cut_at;  ///< with the format pytorch; empty: before blocks
  std::string html;
};

/// What is decided before the search.
struct PlanInput {
  planner::PlanOptions options;
  PlannedFor what;
  std::optional<plan::Plan> priced;  ///< a plan that is only priced
};

/// What the search has found.
struct PlanFindings {
  planner::PlanResult result;
  std::vector<plan::WhatIfResult> changes;
  MachinesAnswer of_machines = {};
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

cluster::Cluster local_cluster_of(const PlanArguments& arguments, const profile::Profile& profile) {
  if (*arguments.workers < 1 || *arguments.workers > planner::kMaxPlannedWorkers) {
    throw ConfigError(
        fmt::format("expected --workers of at least 1 and at most {}, found --workers {}",
                    planner::kMaxPlannedWorkers, *arguments.workers));
  }
  if (profile.copy_bandwidth_bytes_per_s < 1 && arguments.bandwidth.empty()) {
    throw ConfigError(fmt::format(
        "--workers alone plans for threads of the machine that the profile was measured "
        "on, and {} does not say how fast threads add gradients there: add the speed "
        "of the links between workers (e.g. --bandwidth 10Gbps), or give a --cluster "
        "file instead of --workers",
        arguments.profile));
  }
  cluster::Cluster result =
      cluster::local_cluster(static_cast<int>(*arguments.workers),
                             std::max<int64_t>(profile.copy_bandwidth_bytes_per_s, 1));
  result.levels.front().latency_ns = profile.hand_over_ns;
  if (!arguments.bandwidth.empty()) {
    result.levels.front().bandwidth_bytes_per_s =
        parse_option("--bandwidth", arguments.bandwidth, parse_bandwidth);
    result.levels.front().by_reference = false;
    warn_if_small("--bandwidth", arguments.bandwidth, result.levels.front().bandwidth_bytes_per_s,
                  " per second", "10Gbps");
  }
  if (!arguments.latency.empty())
    result.levels.front().latency_ns = parse_option("--latency", arguments.latency, parse_duration);
  return result;
}

cluster::Cluster cluster_of(const PlanArguments& arguments, const profile::Profile& profile,
                            const std::optional<plan::Plan>& priced) {
  if (!arguments.cluster.empty()) return cluster::load_cluster(arguments.cluster);
  if (arguments.workers) return local_cluster_of(arguments, profile);
  if (priced) return priced->cluster;
  throw ConfigError(
      fmt::format("give --cluster FILE, --machines FILE, or --workers N with at most {}",
                  planner::kMaxPlannedWorkers));
}

void check_files(const PlanArguments& arguments) {
  check_outputs({{"--output", arguments.output}, {"--html", arguments.html}},
                {{"--profile", arguments.profile},
                 {"--model", arguments.search.model.name},
                 {"--cluster", arguments.cluster},
                 {"--machines", arguments.machines},
                 {"--price", arguments.price}});
}

/// What torch.distributed.pipelining needs of a plan: FILE.json with the split, FILE.csv with the
/// schedule of one step.
struct ForPytorch {
  std::string path;
  std::string schedule_path;
  std::string cut_at;
};

ForPytorch pytorch_files(const PlanArguments& arguments) {
  if (arguments.output.empty() || is_standard_output(arguments.output)) {
    throw ConfigError(
        "--format pytorch writes two files, the split and the schedule: give --output FILE.json");
  }
  std::string stem = arguments.output;
  if (stem.ends_with(".csv")) {
    throw ConfigError(fmt::format(
        "--format pytorch writes the split as JSON, and the schedule beside it as CSV: expected "
        "--output FILE.json, found {}",
        arguments.output));
  }
  if (stem.ends_with(".json")) stem.resize(stem.size() - 5);
  return {arguments.output, stem + ".csv", arguments.cut_at};
}

/// The schedule of one step, compute only: PyTorch adds the messages.
planner::PytorchSplit split_for_pytorch(const plan::Plan& plan, const profile::Profile& profile,
                                        const cluster::Cluster& cluster,
                                        const std::string& cut_at) {
  try {
    return planner::pytorch_split(plan, profile, cluster, cut_at);
  } catch (const planner::NotForPytorch& no) {
    throw NoAnswer(no.what());
  }
}

std::string pytorch_schedule(const plan::Plan& plan) {
  const schedule::ScheduleShape shape = schedule::shape_of(plan, 1);
  return schedule::to_pytorch_csv(schedule::generate(plan.strategy, shape));
}

/// Which plans are looked at is no question where one is priced.
void check_price(const PlanArguments& arguments, const CLI::App& app) {
  if (arguments.price.empty()) return;
  std::vector<std::string> others;
  for (const auto& row : options::rows_of<options::SearchRequest>())
    if (row.section == options::Section::Plan) others.emplace_back(row.name);
  others.insert(others.end(), {"--compare", "--what-if"});
  for (const std::string& name : others) {
    if (app.count(name) == 0) continue;
    throw ConfigError(
        fmt::format("--price takes the plan as it is and cannot be combined with {}", name));
  }
}

std::optional<int64_t> memory_limit_of(const PlanArguments& arguments) {
  if (arguments.memory_limit.empty()) return std::nullopt;
  const int64_t bytes = parse_option("--memory-limit", arguments.memory_limit, parse_bytes);
  if (bytes == 0) {
    std::cerr << "warning: --memory-limit 0 means no limit\n";
    return std::nullopt;
  }
  warn_if_small("--memory-limit", arguments.memory_limit, bytes, "", "16GB");
  return bytes;
}

std::chrono::nanoseconds time_limit_of(const std::string& text) {
  const std::chrono::nanoseconds limit(parse_option("--time-limit", text, parse_duration));
  if (limit.count() <= 0 || limit >= std::chrono::milliseconds(1)) return limit;
  throw ConfigError(fmt::format(
      "--time-limit expected at least 1 ms, such as 10s or 2min, or 0 for none, found '{}', which "
      "is {}",
      text, format_duration(limit.count())));
}

planner::PlanOptions search_options(const PlanArguments& arguments) {
  planner::PlanOptions plan = arguments.search.plan;
  plan::check_schedule_options(plan.strategy, plan.chunks, plan.slack, plan.keep);
  const model::OptimizerSpec& optimizer = arguments.search.optimizer;
  plan.optimizer_state_per_weight =
      model::usual_state(train::compensated_optimizer(optimizer, plan.compensation));
  if (plan.sync && plan.sync->sync == plan::GradientSync::DiLoCo)
    plan.optimizer_state_per_weight += plan::OuterStep().state_per_weight();
  if (plan.sync && plan.sync->sync == plan::GradientSync::PowerSgd)
    plan.optimizer_state_per_weight += plan::kErrorsPerWeight;
  const std::string why = model::why_not_shared(optimizer);
  plan.share_weights = why.empty();
  if (!why.empty()) {
    if (plan.shard_optimizer == planner::Choice::Always)
      throw ConfigError(fmt::format("--shard-optimizer always: {}; expected never or auto", why));
    plan.shard_optimizer = planner::Choice::Never;
  }
  if (plan.mini_batch == 0) plan.mini_batch.reset();
  if (plan.gradient_groups == 0) plan.gradient_groups.reset();
  plan.memory_limit_bytes = memory_limit_of(arguments);
  plan.time_limit = time_limit_of(arguments.search.time_limit);
  plan.memory_budget_bytes =
      parse_option("--memory-budget", arguments.search.memory_budget, parse_bytes);
  return plan;
}

void check_priced(const plan::Plan& priced, const PlanArguments& arguments,
                  const profile::Profile& profile) {
  if (priced.precision == profile.precision) return;
  throw ConfigError(fmt::format(
      "{} was made for {}, {} was measured in {}: expected the same precision", arguments.price,
      to_string(priced.precision), arguments.profile, to_string(profile.precision)));
}

/// Throughputs and steps count samples then, not micro-batches.
void set_batch_size(const PlanArguments& arguments, profile::Profile& profile) {
  if (!arguments.batch_size || *arguments.batch_size == profile.batch_size) return;
  if (profile.batch_size > 0) {
    throw ConfigError(fmt::format(
        "--batch-size {}: {} was measured with {}: measure it anew with another number",
        *arguments.batch_size, arguments.profile, report::plural(profile.batch_size, "sample")));
  }
  profile.batch_size = *arguments.batch_size;
}

/// Of whom the costs are: a file, or a model whose costs are estimated for machines.
void check_subject(const PlanArguments& arguments, const CLI::App& app) {
  const bool has_model = !arguments.search.model.name.empty();
  if (has_model == !arguments.profile.empty()) {
    throw ConfigError(has_model ? "--model estimates what --profile says: expected one of them"
                                : "expected --profile FILE, or --model with --machines FILE");
  }
  if (has_model && !arguments.precision.empty()) {
    throw ConfigError(
        "--precision: estimates know the numbers that the model has: expected --profile with it");
  }
  if (has_model && !arguments.price.empty())
    throw ConfigError("--price takes a plan's costs from --profile, which is missing");
  if (has_model && arguments.machines.empty())
    throw ConfigError("--model is estimated for the devices of --machines FILE, which is missing");
  for (const auto& row : options::rows_of<options::SearchRequest>()) {
    if (has_model || row.section != options::Section::Model ||
        app.count(std::string(row.name)) == 0)
      continue;
    throw ConfigError(
        fmt::format("{} is of a model that is estimated: expected --model with it", row.name));
  }
}

/// Micro-batches of a model that nobody has measured.
constexpr int64_t kUsualSamples = 1;

PlannedFor planned_for(const PlanArguments& arguments, const planner::PlanOptions& options,
                       const std::optional<plan::Plan>& priced) {
  if (!arguments.machines.empty()) {
    return on_machines(arguments.machines, arguments.search, arguments.profile,
                       arguments.batch_size.value_or(kUsualSamples), options.memory_limit_bytes);
  }
  profile::Profile profile = profile::load_profile(arguments.profile);
  cluster::Cluster cluster = cluster_of(arguments, profile, priced);
  return {std::move(profile), std::move(cluster), {}};
}

PlanInput input_of(const PlanArguments& arguments) {
  planner::PlanOptions options = search_options(arguments);
  std::optional<plan::Plan> priced;
  if (!arguments.price.empty()) priced = plan::load_plan(arguments.price);
  PlannedFor what = planned_for(arguments, options, priced);
  if (!arguments.precision.empty())
    options::check_precision(what.profile, parse_precision(arguments.precision), arguments.profile);
  if (priced) check_priced(*priced, arguments, what.profile);
  if (!arguments.profile.empty()) set_batch_size(arguments, what.profile);
  options.global_norm = options.global_norm || scales_loss(what.profile.precision);
  return {std::move(options), std::move(what), std::move(priced)};
}

/// What is asked of machines beside the plan, or in place of one.
MachinesAnswer answer_for_machines(const PlanInput& input, const planner::PlanResult& result,
                                   Spinner& spinner) {
  const int64_t samples = result.plan ? result.plan->micro_batch_size * result.plan->micro_batches
                                      : profile::samples_per_micro_batch(input.what.profile);
  return {
      .others = planner::other_ways(input.what.profile, input.what.cluster, input.options, samples),
      .changes = what_would_help(input.what, input.options, result, [&](int done, int total) {
        spinner.detail(fmt::format("what would help, {} of {}", done, total));
      })};
}

PlanFindings find_plan(const PlanInput& input, bool what_if) {
  Spinner spinner("planning for " + report::plural(input.what.cluster.num_workers(), "worker"));
  PlanFindings found;
  if (input.priced) {
    found.result.plan = planner::reprice(*input.priced, input.what.profile, input.what.cluster,
                                         input.options.cost_model, input.options.global_norm);
  } else {
    found.result = planner::make_plan(input.what.profile, input.what.cluster, input.options);
  }
  if (found.result.plan && what_if) {
    found.changes =
        planner::what_if(input.what.profile, input.what.cluster, input.options, *found.result.plan,
                         [&](int done, int total) {
                           spinner.detail(fmt::format("what if, {} of {}", done, total));
                         });
  }
  if (input.what.machines && !input.priced)
    found.of_machines = answer_for_machines(input, found.result, spinner);
  return found;
}

std::string tables(const PlanArguments& arguments, const plan::Plan& plan,
                   std::optional<int64_t> memory_limit_bytes,
                   const std::vector<planner::SyncPrice>& prices,
                   const std::vector<plan::WhatIfResult>& changes) {
  plan::Plan shown = plan;
  if (arguments.search.plan.compare) {
    shown.explanation.notes = report::other_notes(plan);  // below the table of all families
    shown.explanation.alternatives.clear();
  }
  std::string text = report::plan_table(shown, memory_limit_bytes);
  if (arguments.search.plan.compare) text += "\nall families\n" + report::compare_table(plan);
  if (!prices.empty())
    text += fmt::format("\nways to add gradients (--sync){}, with this split\n{}",
                        plan.gradient_precision == FloatType::Float32
                            ? ""
                            : fmt::format(" in {}", to_string(plan.gradient_precision)),
                        sync_table(prices, plan.sync));
  if (arguments.what_if) text += "\n" + report::what_if_table(changes);
  return text;
}

int say_no(const PlanArguments& arguments, const PlanInput& input, const PlanFindings& found) {
  const std::string& reason = found.result.reason;
  Json document{{"ok", false}, {"reason", reason}};
  if (input.what.machines) {
    document["machines"] = machines_json(input.what, found.result, found.of_machines);
    if (!arguments.json)
      write_output("", machines_text(input.what, found.result, found.of_machines));
  }
  if (arguments.json) write_output("", document.dump() + "\n");
  std::cerr << "penstock: no plan: " << reason << '\n';
  return kExitNo;
}

/// The split and the schedule beside it, in two files. Adds the split to the document; returns its
/// table.
std::string write_for_pytorch(const ForPytorch& files, const PlanInput& input,
                              const plan::Plan& plan, Json& document) {
  const planner::PytorchSplit split =
      split_for_pytorch(plan, input.what.profile, input.what.cluster, files.cut_at);
  const Json split_document = pytorch_json(split, plan, files.schedule_path);
  write_output(files.schedule_path, pytorch_schedule(split.plan));
  write_output(files.path, to_text(split_document));
  document["pytorch"] = split_document;
  return pytorch_text(split, plan, files.cut_at);
}

void write_plan(const PlanArguments& arguments, const std::optional<ForPytorch>& pytorch,
                const PlanInput& input, const PlanFindings& found) {
  const plan::Plan& plan = *found.result.plan;
  const std::vector<planner::SyncPrice> prices =
      planner::sync_prices(input.what.profile, input.what.cluster, plan, input.options.global_norm);
  Json document = parse_json(plan::to_json(plan), "plan");
  if (arguments.what_if) document["what_if"] = what_if_json(found.changes);
  std::string pytorch_table;
  if (pytorch) {
    pytorch_table = write_for_pytorch(*pytorch, input, plan, document);
  } else if (!arguments.output.empty()) {
    write_output(arguments.output, to_text(document));
  }
  const std::optional<int64_t> memory_limit = input.options.memory_limit_bytes;
  if (!arguments.html.empty())
    write_output(arguments.html,
                 report::html_report(
                     {.plan = plan, .changes = found.changes, .memory_limit_bytes = memory_limit}));
  if (arguments.json && !prices.empty()) document["sync_methods"] = sync_json(prices);
  std::string machines;
  if (input.what.machines && !input.priced) {
    document["machines"] = machines_json(input.what, found.result, found.of_machines);
    machines = machines_text(input.what, found.result, found.of_machines);
  }
  if (!input.priced && arguments.json) document["search"] = search_json(found.result);
  write_output("", arguments.json ? document.dump() + "\n"
                                  : tables(arguments, plan, memory_limit, prices, found.changes) +
                                        pytorch_table + machines);
  if (input.priced || arguments.json) return;
  std::cout.flush();
  std::cerr << search_text(found.result);
}

int run_plan(const PlanArguments& arguments, const CLI::App& app) {
  check_files(arguments);
  std::optional<ForPytorch> pytorch;
  if (arguments.format == "pytorch")
    pytorch = pytorch_files(arguments);
  else if (app.count("--cut-at") > 0)
    throw ConfigError("--cut-at says where PyTorch cuts: expected --format pytorch with it");
  check_price(arguments, app);
  check_subject(arguments, app);
  const PlanInput input = input_of(arguments);
  const PlanFindings found = find_plan(input, arguments.what_if);
  if (!found.result.plan) return say_no(arguments, input, found);
  write_plan(arguments, pytorch, input, found);
  return kExitYes;
}

void add_input(CLI::App& app, PlanArguments& arguments) {
  app.add_option("--profile", arguments.profile,
                 "Profile (penstock profile, or PipeDream's graph.txt)");
  add_precision(
      app, arguments.precision,
      "The precision that the profile must have been measured in (default: any; the plan has the "
      "profile's)");
  auto* cluster = app.add_option("--cluster", arguments.cluster, "Cluster file (TOML)");
  auto* workers =
      app.add_option("--workers", arguments.workers,
                     fmt::format("Threads of this machine, at most {}, instead of a cluster file",
                                 planner::kMaxPlannedWorkers));
  cluster->excludes(workers);
  app.add_option("--machines", arguments.machines,
                 "Instead of a cluster file: the machines that you have (TOML, docs/machines.md). "
                 "Says what fits, how fast, and what would help")
      ->excludes(workers)
      ->excludes(cluster);
  app.add_option("--bandwidth", arguments.bandwidth,
                 "With --workers: links of this speed between them, e.g. 10Gbps")
      ->needs(workers);
  app.add_option("--latency", arguments.latency, "With --workers: latency of a message, e.g. 20us")
      ->needs(workers);
  app.add_option(
         "--batch-size", arguments.batch_size,
         "Samples per micro-batch: of --model (default: 1), or that the profile was measured with, "
         "where it does not say so itself (PipeDream's graph.txt)")
      ->check(whole_number(1, kMostSamples));
  app.add_option("--memory-limit", arguments.memory_limit,
                 "Memory per worker, e.g. 16GB (default: that of the cluster's devices)");
  app.add_option("--cost-model", arguments.search.plan.cost_model,
                 fmt::format("{}", fmt::join(planner::cost_model_names(), ", ")))
      ->capture_default_str();
}

void add_explanation(CLI::App& app, PlanArguments& arguments) {
  app.add_flag("--compare", arguments.search.plan.compare,
               "Compare all families of strategies in one table, with the winner and the reason");
  app.add_flag("--what-if", arguments.what_if,
               "Show the effect of more workers, faster links and other memory sizes; runs the "
               "planner about ten times");
  app.add_option("--price", arguments.price,
                 "Do not search: predict the cost of this plan (JSON) with the profile, cluster "
                 "(default: the plan's own) and cost model");
  app.add_option("-o,--output", arguments.output, "File to write the plan to (JSON)");
  app.add_option("--format", arguments.format,
                 "penstock, or pytorch: --output is a split specification for "
                 "torch.distributed.pipelining, and beside it lies the schedule (.csv)")
      ->check(CLI::IsMember({"penstock", "pytorch"}))
      ->capture_default_str();
  app.add_option(
      "--cut-at", arguments.cut_at,
      "With --format pytorch: cut only before modules whose names fit this pattern, e.g. "
      "'model.layers.*' (default: before blocks, and modules outside of them)");
  app.add_option(
      "--html", arguments.html,
      "File to write an HTML page about the plan to: picture, tables, notes; needs no network");
}

}  // namespace

Command plan_command(CLI::App& parent) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* app = parent.add_subcommand(
      "plan", "Find the best split of a profiled model over workers, and explain it");
  add_input(*app, *arguments);
  add_rows(*app, arguments->search);
  add_explanation(*app, *arguments);
  app->footer(
      "Exit codes: 0 a plan, 1 no plan fits (the reason is on standard error), 2 bad input, 3 "
      "failure.\ndocs/plans.md says how to read a plan.");
  add_common(*app, *arguments);
  return {app, [arguments, app]() { return run_plan(*arguments, *app); }};
}

}  // namespace penstock::tool
