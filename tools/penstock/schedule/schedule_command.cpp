// penstock schedule: generates a schedule and prints it in its text form.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>

#include "penstock/plan/plan.h"
#include "penstock/report/report.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/output_files.h"
#include "tools/penstock/schedule/schedule_costs.h"

namespace penstock::tool {

namespace {

struct ScheduleOptions : CommonOptions {
  std::string kind = "1f1b";
  int64_t stages = 0;
  int64_t chunks = 0;
  int64_t slack = 1;
  std::vector<int64_t> keep;
  ScheduleCostOptions costs;
  std::vector<int> replicas;
  std::vector<int> teams;
  std::string plan;
  int64_t micro_batches = 8;
  int64_t accumulate = 0;
  std::string weights;
  std::string compensate;
  std::string recompute;
  std::string offload;
  bool norm = false;
  bool compute_only = false;
  bool grid = false;
  std::string format = "penstock";
  std::string pytorch;  ///< the version that is to read the CSV; empty: 2.13
  std::string output;
  CLI::Option* stages_option = nullptr;
  CLI::Option* chunks_option = nullptr;
  CLI::Option* slack_option = nullptr;
  CLI::Option* micro_batches_option = nullptr;
};

/// What is to be generated, and between which stages tensors flow.
struct Request {
  plan::Strategy strategy = plan::Strategy::OneFOneB;
  schedule::ScheduleShape shape;  ///< of whole stages
  std::vector<int> teams = {};    ///< by stage; empty: all are whole
  std::vector<schedule::StageLink> links;
};

int64_t stages_of(const ScheduleOptions& options, plan::Strategy strategy, int chunks) {
  if (!options.stages_option->empty()) return options.stages;
  if (options.replicas.size() > 1) return static_cast<int64_t>(options.replicas.size());
  return plan::traits(strategy).extent == plan::Extent::Pipeline ? int64_t{4} * std::max(chunks, 1)
                                                                 : 1;
}

std::vector<int> replicas_of(const ScheduleOptions& options, plan::Strategy strategy, int chunks) {
  const int64_t stages = stages_of(options, strategy, chunks);
  if (stages < 1 || stages > schedule::kMaxWorkers) {
    throw ConfigError(
        fmt::format("--stages must lie between 1 and {}, found {}", schedule::kMaxWorkers, stages));
  }
  const auto listed = static_cast<int64_t>(options.replicas.size());
  if (listed > 1 && listed != stages) {
    throw ConfigError(fmt::format("--stages says {}, --replicas lists {} stages", stages, listed));
  }
  if (listed == stages) return options.replicas;
  const int of_each =
      listed == 1 ? options.replicas.front() : plan::traits(strategy).replicas_per_copy();
  return std::vector<int>(static_cast<size_t>(stages), of_each);
}

/// Members of the teams, by stage.
std::vector<int> teams_of(const ScheduleOptions& options, int num_stages) {
  constexpr int kMostMembers = 10'000;
  for (const int size : options.teams) {
    if (size >= 1 && size <= kMostMembers) continue;
    throw ConfigError(
        fmt::format("--teams expects from 1 to {} members, found {}", kMostMembers, size));
  }
  if (options.teams.size() == 1)
    return std::vector<int>(static_cast<size_t>(num_stages), options.teams.front());
  if (options.teams.empty() || options.teams.size() == static_cast<size_t>(num_stages))
    return options.teams;
  throw ConfigError(fmt::format("--teams lists {} stages, the schedule has {}",
                                options.teams.size(), num_stages));
}

/// "all", or stage numbers with commas between them.
std::vector<bool> listed_stages(const std::string& option, const std::string& text,
                                int num_stages) {
  std::vector<bool> stages(static_cast<size_t>(num_stages), text == "all");
  if (text == "all") return stages;
  for (const std::string& item : CLI::detail::split(text, ',')) {
    int64_t stage = -1;
    if (!CLI::detail::lexical_cast(item, stage) || stage < 0 || stage >= num_stages) {
      throw ConfigError(fmt::format("{} expects 'all' or stage numbers from 0 to {}, found '{}'",
                                    option, num_stages - 1, item.substr(0, 40)));
    }
    stages[static_cast<size_t>(stage)] = true;
  }
  return stages;
}

/// From the options alone.
Request asked_for(const ScheduleOptions& options) {
  Request request{
      .strategy = plan::parse_scheduled_strategy(options.kind), .shape = {}, .links = {}};
  const plan::StrategyTraits& row = plan::traits(request.strategy);
  const auto given = [](const CLI::Option* option, int64_t value) {
    return option->empty() ? std::nullopt : std::optional<int64_t>(value);
  };
  const auto check = [&](std::optional<int64_t> keep) {
    plan::check_schedule_options(request.strategy, given(options.chunks_option, options.chunks),
                                 given(options.slack_option, options.slack), keep);
  };
  check(std::nullopt);
  for (const int64_t keep : options.keep) check(keep);
  if (!row.takes_keep && !options.costs.given().empty()) {
    throw ConfigError(fmt::format(
        "{}: the order of {} does not depend on costs; those that do are {}", options.costs.given(),
        row.name, plan::names_of(plan::strategies_where([](const auto& other) {
          return other.takes_keep;
        }))));
  }
  schedule::ScheduleShape& shape = request.shape;
  const int chunks = options.chunks_option->empty() ? row.chunks : static_cast<int>(options.chunks);
  shape.replicas = replicas_of(options, request.strategy, chunks);
  shape = schedule::with_placement(request.strategy, shape, chunks);
  if (row.takes_slack) shape.slack = options.slack;
  shape.keep = options.keep;
  if (options.keep.size() == 1) shape.keep.assign(shape.replicas.size(), options.keep.front());
  shape.micro_batches = options.micro_batches;
  shape.accumulate = options.accumulate;
  shape.policy = options.weights.empty() ? plan::default_policy(request.strategy)
                                         : plan::parse_weight_policy(options.weights);
  request.teams = teams_of(options, shape.num_stages());
  request.links =
      schedule::links_of_members(schedule::chain_links(shape.num_stages()), request.teams);
  return request;
}

Request of_plan(const ScheduleOptions& options) {
  const plan::Plan plan = plan::load_plan(options.plan);
  Request request{.strategy = plan.strategy, .shape = schedule::shape_of(plan, 1), .links = {}};
  // All of a mini-batch at least, unless the user says otherwise.
  request.shape.micro_batches = options.micro_batches_option->empty()
                                    ? std::max(options.micro_batches, plan.micro_batches)
                                    : options.micro_batches;
  if (options.accumulate != 0) request.shape.accumulate = options.accumulate;
  if (!options.weights.empty()) request.shape.policy = plan::parse_weight_policy(options.weights);
  request.links = schedule::links_of(plan);
  request.teams = plan.teams();
  return request;
}

schedule::Schedule make_schedule(const ScheduleOptions& options) {
  if (options.micro_batches < 1)
    throw ConfigError(
        fmt::format("--micro-batches must be at least 1, found {}", options.micro_batches));
  Request request = options.plan.empty() ? asked_for(options) : of_plan(options);
  schedule::ScheduleShape& shape = request.shape;
  if (!options.recompute.empty())
    shape.recompute = listed_stages("--recompute", options.recompute, shape.num_stages());
  if (!options.offload.empty())
    shape.offload = listed_stages("--offload", options.offload, shape.num_stages());
  if (options.norm) shape.global_norm = true;
  if (shape.accumulate == 0) {
    shape.accumulate = 1;
    if (shape.policy != schedule::WeightPolicy::TwoBuffered) schedule::validate(shape);
    shape.accumulate = schedule::default_accumulate(request.strategy, shape);
  }
  if (options.plan.empty() && plan::traits(request.strategy).takes_keep) {
    shape.costs = step_costs_of(options.costs, shape);
    // Each worker has a link of its own.
    shape.link_units.emplace_back(static_cast<size_t>(shape.num_workers()));
    std::iota(shape.link_units[0].begin(), shape.link_units[0].end(), 0);
  }
  if (!options.compensate.empty())
    shape.compensation = plan::parse_compensation(options.compensate);
  shape.repeats = shape.micro_batches > shape.accumulate;
  const schedule::Schedule compute =
      schedule::with_teams(schedule::generate(request.strategy, shape), request.teams);
  return options.compute_only ? compute : schedule::lower(compute, request.links);
}

int run_schedule(const ScheduleOptions& options) {
  if (!options.plan.empty() && !options.costs.given().empty())
    throw ConfigError(options.costs.given() + " excludes --plan, which has the costs");
  const bool to_file = !options.output.empty() && !is_standard_output(options.output);
  if (to_file) check_outputs({{"--output", options.output}}, {{"--plan", options.plan}});
  if (options.grid && options.format == "pytorch" && !to_file)
    throw ConfigError(
        "--grid shows the grid instead of --format pytorch: write the CSV to a file, with "
        "--output");
  if (!options.pytorch.empty() && options.format != "pytorch")
    throw ConfigError(
        "--pytorch says which PyTorch reads the CSV: expected --format pytorch with it");
  const auto form = parse_option("--pytorch", options.pytorch.empty() ? "2.13" : options.pytorch,
                                 schedule::pytorch_form);
  const schedule::Schedule schedule = make_schedule(options);
  if (options.format == "pytorch") {
    if (const auto why = schedule::why_pytorch_refuses(schedule))
      throw NoAnswer(fmt::format("PyTorch does not run {}: {}", schedule.kind, *why));
  }
  const std::string text = options.format == "pytorch" ? schedule::to_pytorch_csv(schedule, form)
                                                       : schedule::to_text(schedule);
  if (to_file) write_output(options.output, text);
  if (options.json) {
    Json document{{"kind", schedule.kind},
                  {"stages", schedule.shape.num_stages()},
                  {"workers", schedule.workers.size()},
                  {"micro_batches", schedule.shape.micro_batches},
                  {"accumulate", schedule.shape.accumulate},
                  {"weights", std::string(to_string(schedule.shape.policy))},
                  {"compensate", std::string(to_string(schedule.shape.compensation))},
                  {"actions", schedule.num_actions()},
                  {"text", text}};
    write_output("", document.dump() + "\n");
  } else if (options.grid) {
    write_output("", report::text_grid(schedule));
  } else if (!to_file) {
    write_output("", text);
  } else {
    std::cerr << fmt::format(
        "wrote {} ({}, {})\n", options.output,
        report::plural(static_cast<int64_t>(schedule.workers.size()), "worker"),
        report::plural(schedule.num_actions(), "action"));
  }
  return kExitYes;
}

}  // namespace

Command schedule_command(CLI::App& parent) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* app =
      parent.add_subcommand("schedule", "Generate a schedule and print it, one line per worker");
  auto* kind = app->add_option("--kind", options->kind,
                               "One of: " + plan::names_of(plan::scheduled_strategies()))
                   ->capture_default_str();
  auto* stages = app->add_option("--stages", options->stages,
                                 "Stages of the model (default: enough for 4 workers per copy)");
  auto* chunks =
      app->add_option("--chunks", options->chunks,
                      "Stages per worker, for interleaved and interleaved-zb (default 2)");
  auto* slack =
      app->add_option(
             "--slack", options->slack,
             "eager-1f1b: extra micro-batches in flight per later stage, compared with 1F1B")
          ->capture_default_str();
  auto* keep = add_numbers(*app, "--keep", options->keep,
                           "zb-auto, zb-auto-v: micro-batches that a worker keeps at most from F "
                           "to W, summed over its stages; one number, or one per stage (default: "
                           "2p-1 and 2p)");
  auto* replicas = add_numbers(*app, "--replicas", options->replicas,
                               "Replicas of each stage, e.g. 3,1, or one number for all");
  auto* teams = add_numbers(*app, "--teams", options->teams,
                            "Members of the team that runs each replica of a stage (tensor "
                            "parallelism), e.g. 4,1, or one number for all");
  options->stages_option = stages;
  options->chunks_option = chunks;
  options->slack_option = slack;
  app->add_option("--plan", options->plan,
                  "Take kind, stages, replicas, teams, their workers and weight policy from a plan")
      ->excludes(stages)
      ->excludes(chunks)
      ->excludes(slack)
      ->excludes(keep)
      ->excludes(replicas)
      ->excludes(teams)
      ->excludes(kind);
  options->micro_batches_option = app->add_option("--micro-batches", options->micro_batches,
                                                  "Micro-batches in the whole schedule")
                                      ->capture_default_str();
  app->add_option("--accumulate", options->accumulate,
                  "Micro-batches per optimiser step (default: depends on the kind)")
      ->check(whole_number(1));
  app->add_option("--weights", options->weights,
                  "Weight policy: flush, stash, vertical-sync, 2bw, latest, current");
  app->add_option("--compensate", options->compensate,
                  "What makes up for delayed weights: none, predict, rate, correct, nesterov");
  app->add_option("--recompute", options->recompute,
                  "Stages that keep only their inputs and recompute activations: all, or e.g. 0,2");
  app->add_option("--offload", options->offload,
                  "Stages that move activations to the memory of the host and back: all, or e.g. "
                  "0,2");
  app->add_flag("--norm", options->norm,
                "Wait for the global gradient norm before each step (for clipping)");
  app->add_flag("--compute-only", options->compute_only,
                "Leave out recomputation, moves, messages, syncs, steps and frees");
  auto* grid =
      app->add_flag("--grid", options->grid, "Draw the compute actions in unit time instead");
  app->add_option("--format", options->format,
                  "penstock, or pytorch: the CSV of torch.distributed.pipelining")
      ->check(CLI::IsMember({"penstock", "pytorch"}))
      ->capture_default_str();
  app->add_option("--pytorch", options->pytorch,
                  "With --format pytorch: the version of PyTorch that is to read the CSV, which "
                  "matters with messages: 2.13, 2.14 or 2.15 (default: 2.13)");
  app->add_option("-o,--output", options->output, "File to write the schedule to");
  add_order_cost_options(*app, options->costs);
  add_common(*app, *options);
  grid->excludes("--json");
  return {app, [options]() { return run_schedule(*options); }};
}

}  // namespace penstock::tool
