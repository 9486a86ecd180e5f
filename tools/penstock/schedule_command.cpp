// penstock schedule: generates a schedule and prints it in its text form.
#include <fmt/format.h>

#include <iostream>
#include <limits>
#include <memory>

#include "penstock/plan/plan.h"
#include "penstock/report/report.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/text_format.h"
#include "penstock/util/error.h"
#include "penstock/util/json.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

namespace {

struct Options : CommonOptions {
  std::string kind = "1f1b";
  int64_t stages = 0;
  std::vector<int> replicas;
  std::string plan;
  int64_t micro_batches = 8;
  int64_t accumulate = 0;
  std::string weights;
  bool compute_only = false;
  bool grid = false;
  std::string output;
  CLI::Option* stages_option = nullptr;
};

std::vector<int> replicas_of(const Options& options, schedule::Kind kind) {
  if (!options.replicas.empty()) {
    if (!options.stages_option->empty() && options.stages != static_cast<int64_t>(options.replicas.size())) {
      throw ConfigError(fmt::format("--stages says {}, --replicas lists {} stages", options.stages, options.replicas.size()));
    }
    return options.replicas;
  }
  const int64_t stages =
      !options.stages_option->empty() ? options.stages : (kind == schedule::Kind::Serial || kind == schedule::Kind::DataParallel ? 1 : 4);
  if (stages < 1 || stages > schedule::kMaxWorkers) {
    throw ConfigError(fmt::format("--stages must lie between 1 and {}, found {}", schedule::kMaxWorkers, stages));
  }
  return std::vector<int>(static_cast<size_t>(stages), 1);
}

schedule::Schedule make_schedule(const Options& options) {
  if (options.micro_batches < 1) throw ConfigError(fmt::format("--micro-batches must be at least 1, found {}", options.micro_batches));
  schedule::ScheduleShape shape;
  schedule::Kind kind = schedule::parse_kind(options.kind);
  std::vector<schedule::StageLink> links;
  std::string weights = options.weights;
  shape.micro_batches = options.micro_batches;
  shape.accumulate = options.accumulate;
  if (!options.plan.empty()) {
    const plan::Plan plan = plan::load_plan(options.plan);
    kind = schedule::parse_kind(plan.strategy);
    shape.replicas = plan.replicas();
    if (weights.empty()) weights = plan.weights;
    if (shape.accumulate == 0) shape.accumulate = plan.micro_batches;
    for (const plan::Link& link : plan.links) links.push_back({link.from, link.to});
  } else {
    shape.replicas = replicas_of(options, kind);
    links = schedule::chain_links(shape.num_stages());
  }
  shape.policy = weights.empty() ? schedule::default_policy(kind) : schedule::parse_weight_policy(weights);
  if (shape.accumulate == 0) {
    shape.accumulate = 1;
    if (shape.policy != schedule::WeightPolicy::TwoBuffered) schedule::validate(shape);
    shape.accumulate = schedule::default_accumulate(kind, shape);
  }
  const schedule::Schedule compute = schedule::generate(kind, shape);
  return options.compute_only ? compute : schedule::lower(compute, links);
}

int run(const Options& options) {
  const schedule::Schedule schedule = make_schedule(options);
  const std::string text = schedule::to_text(schedule);
  const bool to_file = !options.output.empty() && options.output != "-";
  if (to_file) write_output(options.output, text);
  if (options.json) {
    Json document{{"kind", schedule.kind},
                  {"stages", schedule.shape.num_stages()},
                  {"workers", schedule.workers.size()},
                  {"micro_batches", schedule.shape.micro_batches},
                  {"accumulate", schedule.shape.accumulate},
                  {"weights", std::string(schedule::to_string(schedule.shape.policy))},
                  {"actions", schedule.num_actions()},
                  {"text", text}};
    write_output("", document.dump() + "\n");
  } else if (options.grid) {
    write_output("", report::text_grid(schedule));
  } else if (!to_file) {
    write_output("", text);
  } else {
    std::cerr << fmt::format("wrote {} ({} workers, {} actions)\n", options.output, schedule.workers.size(), schedule.num_actions());
  }
  return kExitYes;
}

}  // namespace

Command schedule_command(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("schedule", "Generate a schedule and print it, one line per worker");
  std::string kinds;
  for (const schedule::Kind kind : schedule::all_kinds()) kinds += (kinds.empty() ? "" : ", ") + std::string(schedule::to_string(kind));
  auto* kind = app->add_option("--kind", options->kind, "One of: " + kinds)->capture_default_str();
  auto* stages = app->add_option("--stages", options->stages, "Stages, one worker each");
  options->stages_option = stages;
  auto* replicas = app->add_option("--replicas", options->replicas, "Workers per stage, e.g. 3,1")->delimiter(',');
  app->add_option("--plan", options->plan, "Take kind, stages, replicas and weights from a plan")
      ->excludes(stages)
      ->excludes(replicas)
      ->excludes(kind);
  app->add_option("--micro-batches", options->micro_batches, "Micro-batches in the whole schedule")->capture_default_str();
  app->add_option("--accumulate", options->accumulate, "Micro-batches per optimiser step (default: the kind's own)");
  app->add_option("--weights", options->weights, "Weight policy: flush, stash, vertical-sync, 2bw, latest");
  app->add_flag("--compute-only", options->compute_only, "Leave out messages, syncs, steps and frees");
  app->add_flag("--grid", options->grid, "Draw the compute actions in unit time instead");
  app->add_option("-o,--output", options->output, "File to write the text form to");
  add_common(*app, *options);
  return {app, [options]() { return run(*options); }};
}

}  // namespace penstock::tool
