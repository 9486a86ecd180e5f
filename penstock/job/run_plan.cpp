#include "penstock/job/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "penstock/graph/model_graph.h"
#include "penstock/job/adapted_plan.h"
#include "penstock/job/auto_plan.h"
#include "penstock/job/auto_plan_together.h"
#include "penstock/job/token_width.h"
#include "penstock/job/worker_devices.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/options/rows.h"
#include "penstock/plan/boundaries.h"
#include "penstock/planner/any_boundary.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/printable.h"

namespace penstock::job {

namespace {

int64_t batch_size_of(const options::TrainRequest& request) {
  return request.run.batch_size.value_or(options::kUsualBatchSize);
}

/// Whether the plan's stages are those of the model; other layers are most likely another model's.
void check_model(const plan::Plan& plan, const model::Model& model, const std::string& path) {
  try {
    plan::stage_of_layer(plan, model.graph());
  } catch (const ConfigError& error) {
    if (plan.model.empty() || plan.model == model.name()) throw;
    throw ConfigError(fmt::format("{} is a plan for {}, --model is {}: {}", path, plan.model,
                                  model.name(), error.what()));
  }
}

/// Every worker is a thread with its own copy of the weights: refused before anything is made for
/// it.
void check_workers(const plan::Plan& plan, const std::string& path) {
  if (plan.num_workers() <= options::kMaxThreads) return;
  throw ConfigError(fmt::format(
      "{}: the plan has {} workers, expected at most {}: they are threads of this process", path,
      plan.num_workers(), options::kMaxThreads));
}

void check_precision(const plan::Plan& plan, std::optional<Precision> asked,
                     const std::string& path) {
  if (!asked || *asked == plan.precision) return;
  throw ConfigError(fmt::format(
      "{} was made for {}, --precision is {}: plan with a profile of that precision (penstock "
      "profile --precision {})",
      path, to_string(plan.precision), to_string(*asked), to_string(*asked)));
}

/// Takes the method and the precision that the user names. What a plan of theirs predicts stays
/// that of its own; its notes, which may be about them, go.
void set_sync(const options::PlanSection& asked, plan::Plan& plan, const Listener& listener) {
  const auto before = std::pair(plan.sync_method(), plan.gradient_precision);
  const plan::SyncMethod method =
      asked.sync ? asked.sync->method.value_or(before.first) : before.first;
  plan.set_sync_method(method);
  plan.gradient_precision = asked.gradient_precision.value_or(plan.gradient_precision);
  if (asked.file.empty() || before == std::pair(method, plan.gradient_precision)) return;
  plan.explanation.notes.clear();
  listener.tell(fmt::format("{}: its predictions are for --sync {} --sync-precision {}\n",
                            asked.file, to_string(before.first), to_string(before.second)));
}

/// Ranks may lack the file, and have rank 0's plan all the same; one that says something else is
/// refused.
void check_same_plans(Job& job, const std::string& path) {
  const std::vector<std::string> plans = job.together([&]() -> std::string {
    if (!job.is_first() && !std::filesystem::exists(path)) return {};
    const plan::Plan plan = plan::load_plan(path);
    return fmt::format("{} on {}, CRC {:08x}", plan::to_string(plan.strategy),
                       plural(plan.num_workers(), "worker"), crc32_of(plan::to_json(plan)));
  });
  for (size_t r = 1; r < plans.size(); ++r) {
    if (plans[r].empty() || plans[r] == plans.front()) continue;
    throw ConfigError(
        fmt::format("--plan {}: the ranks of a job must have the same plan: the file of rank 0 is "
                    "{}, that of rank {} is {}",
                    path, plans.front(), r, plans[r]));
  }
}

/// Why the run cannot have teams; empty: it can.
std::string why_no_teams(const options::TrainRequest& request) {
  const auto& sync = request.plan.sync;
  if (sync && sync->method && steps_alone(sync->method->sync)) {
    return fmt::format("--sync {} adds changes of weights, not gradients",
                       to_string(*sync->method));
  }
  if (sync && sync->method && sync->method->sync == plan::GradientSync::PowerSgd)
    return fmt::format("--sync {} makes factors of whole weights", to_string(*sync->method));
  if (request.data.carry_state) return "--carry-state keeps states that members would share";
  if (request.data.coverage_penalty > 0) return "--coverage-penalty looks into whole layers";
  const model::OptimizerSpec optimizer = options::optimizer_of(request);
  if (model::traits(optimizer.kind).needs_whole_weight)
    return fmt::format("--optimizer {} needs all of a weight for its step",
                       model::traits(optimizer.kind).name);
  return {};
}

/// Who leaves the size of teams open gets none where the run cannot have any. Throws ConfigError
/// for one that is asked for.
std::optional<int> wanted_teams(const options::TrainRequest& request) {
  const std::optional<int>& asked = request.plan.tensor;
  if (asked.value_or(2) == 1) return asked;
  const std::string why = why_no_teams(request);
  if (why.empty()) return asked;
  if (!asked) return 1;
  throw ConfigError(fmt::format("--tensor {}: {}: expected --tensor 1", *asked, why));
}

int64_t samples_per_step(const plan::Plan& plan) {
  return saturating_mul(plan.micro_batch_size, plan.micro_batches);
}

}  // namespace

std::optional<int64_t> capped_micro_batches(std::optional<int64_t> wanted, int64_t mini_batch_size,
                                            const Listener& listener) {
  if (wanted.value_or(0) <= mini_batch_size) return wanted;
  listener.tell(fmt::format("--micro-batches {}: a step of {} has {}\n", *wanted,
                            plural(mini_batch_size, "sample"),
                            plural(mini_batch_size, "micro-batch")));
  return mini_batch_size;
}

AutoPlanRequest auto_plan_request(const options::TrainRequest& request, const model::Model& model) {
  const options::PlanSection& asked = request.plan;
  const int64_t workers = asked.workers.value_or(1);
  if (workers < 1 || workers > options::kMaxThreads) {
    throw ConfigError(fmt::format("--workers must lie between 1 and {}, found {}",
                                  options::kMaxThreads, workers));
  }
  if (const int64_t team = asked.tensor.value_or(1); team > 1 && workers % team != 0) {
    throw ConfigError(fmt::format(
        "{} cannot be shared out to teams of {}: expected teams (tensor) of a size that divides "
        "the number of workers",
        plural(workers, "worker"), team));
  }
  AutoPlanRequest made{.strategy = asked.strategy,
                       .shard_optimizer = asked.shard_optimizer,
                       .weights = asked.weights,
                       .compensation = asked.compensation.value_or(plan::Compensation::None),
                       .workers = static_cast<int>(workers),
                       .tensor = wanted_teams(request),
                       .sequence = asked.sequence,
                       .threads_per_worker = request.run.threads,
                       .device_graphs = request.run.device_graphs,
                       .mini_batch_size = batch_size_of(request),
                       .micro_batches = asked.micro_batches,
                       .chunks = asked.chunks,
                       .slack = asked.slack,
                       .keep = asked.keep,
                       .gradient_groups = options::unless_zero(request.run.gradient_groups),
                       .straight = asked.straight,
                       .profile_path = asked.profile,
                       .profile_cache = asked.profile_cache,
                       .seed = request.run.seed,
                       .optimizer = options::optimizer_of(request),
                       .loss = request.loss};
  // Only under flush are the gradients of a weight that stages share added up at one moment.
  if (!graph::tie_groups(model.graph()).empty() && !made.strategy && !made.weights)
    made.weights = plan::WeightPolicy::Flush;
  // A run that is checked needs the bits of one worker.
  if (asked.sync || !request.run.check_against_serial)
    made.sync = asked.sync ? asked.sync->method : std::nullopt;
  made.outer = request.run.outer;
  made.gradient_precision = asked.gradient_precision.value_or(made.gradient_precision);
  made.precision = asked.precision.value_or(made.precision);
  if (asked.boundary) made.boundary = asked.boundary->coding;
  made.global_norm = request.run.clip_norm > 0 || scales_loss(made.precision);
  return made;
}

plan::Plan one_stage(const model::Model& model, Precision precision) {
  plan::Plan plan;
  plan.precision = precision;
  plan.model = model.name();
  plan.strategy = plan::Strategy::Serial;
  plan.weights = plan::default_policy(plan.strategy);
  plan.stages.resize(1);
  for (const graph::LayerNode& layer : model.graph().layers())
    plan.stages[0].layers.push_back(layer.name);
  return plan;
}

/// As runtime::Stages::shares_weights(), of a plan that says so of a stage.
bool RunPlanner::shares_weights(const plan::Plan& plan) const {
  return job == nullptr && device_to_profile(devices).empty() && !steps_alone(plan.sync) &&
         model::why_not_shared(options::optimizer_of(request)).empty();
}

/// What the user asks for the boundaries of a plan that is given: its links; nothing: its own.
std::optional<std::vector<plan::Link>> boundaries_of(const options::PlanSection& asked,
                                                     const plan::Plan& given,
                                                     const model::Model& model) {
  if (!asked.boundary) return std::nullopt;
  plan::Plan plan = given;
  if (asked.boundary->coding)
    plan::set_boundaries(plan, *asked.boundary->coding);
  else
    plan = planner::with_chosen_boundaries(std::move(plan));
  plan::set_widths(plan, token_width(model));
  return plan.links;
}

/// The user's plan.
RunPlan RunPlanner::plan_of_file() const {
  const std::string& path = request.plan.file;
  plan::Plan plan = plan::load_plan(path);
  check_workers(plan, path);
  const int64_t mini_batch_size = request.run.batch_size.value_or(samples_per_step(plan));
  options::check_batch_size(mini_batch_size);
  check_model(plan, model, path);
  if (!plan.model.empty() && plan.model != model.name()) {
    listener.tell(fmt::format(
        "warning: {} is a plan for {}, --model is {}: the layers have the same names, but the "
        "plan's times may not be this model's\n",
        path, printable(plan.model), model.name()));
  }
  plan.model = model.name();
  check_precision(plan, request.plan.precision, path);
  if (request.plan.boundary) plan::add_links(plan, model.graph());
  plan = adapted_plan(plan, {.mini_batch_size = mini_batch_size,
                             .micro_batches = capped_micro_batches(request.plan.micro_batches,
                                                                   mini_batch_size, listener),
                             .weights = request.plan.weights,
                             .compensation = request.plan.compensation,
                             .boundaries = boundaries_of(request.plan, plan, model),
                             .shard_optimizer = request.plan.shard_optimizer,
                             .share_weights = shares_weights(plan),
                             .sequence = request.plan.sequence});
  return {.plan = std::move(plan), .mini_batch_size = mini_batch_size};
}

RunPlan RunPlanner::shared_plan_of_file() const {
  if (job == nullptr) return plan_of_file();
  check_same_plans(*job, request.plan.file);
  const std::string text = job->from_first([&] { return plan::to_json(plan_of_file().plan); });
  RunPlan shared{.plan = plan::parse_plan(text, "the plan of rank 0")};
  shared.mini_batch_size = request.run.batch_size.value_or(samples_per_step(shared.plan));
  return shared;
}

/// The plan of the checkpoint that the run goes on from, if it was made for the same request, so
/// that the run goes on as if it had not ended. Says which plan it will be. Empty: to be planned.
std::string RunPlanner::plan_of_checkpoint(const std::string& plan_request) const {
  const std::string& folder = request.run.checkpoint;
  if (!request.run.resume || !request.plan.file.empty() || !train::has_checkpoint(folder))
    return {};
  const train::SavedPlan saved = train::newest_plan(folder, model);
  if (saved.request == plan_request) {
    listener.tell(fmt::format("plan: that of the checkpoint, {}\n", saved.file.string()));
    return saved.text;
  }
  listener.tell(
      saved.file.empty()
          ? std::string("plan: made anew, because the checkpoint holds none\n")
          : fmt::format("plan: made anew for {}; that of the checkpoint was made for {}\n",
                        plan_request, saved.request));
  return {};
}

plan::Plan RunPlanner::plan_made_now() const {
  AutoPlanRequest made = auto_plan_request(request, model);
  made.micro_batches = capped_micro_batches(made.micro_batches, made.mini_batch_size, listener);
  made.training_samples = training_samples;
  made.lengths = lengths;
  made.device = device_to_profile(devices);
  made.stop = job == nullptr ? stop : nullptr;  // ranks stop together, later
  made.listener = listener;
  made.sums_wait = request.run.fabric == net::FabricKind::Nccl;
  if (job != nullptr) return auto_plan_together(*job, model, made);
  made.between_gpus = level_between(devices, made.workers);
  return auto_plan(model, made);
}

RunPlan RunPlanner::plan_of_job() const {
  const std::string plan_request = options::plan_request(request);
  const auto look = [&] { return plan_of_checkpoint(plan_request); };
  const std::string saved = job == nullptr ? look() : job->from_first(look);
  RunPlan found{.plan = {}, .mini_batch_size = batch_size_of(request)};
  if (!saved.empty())
    found.plan = plan::parse_plan(saved, "the checkpoint's plan");
  else if (!request.plan.file.empty())
    found = shared_plan_of_file();
  else
    found.plan = plan_made_now();
  found.plan_request = plan_request;
  set_sync(request.plan, found.plan, listener);
  return found;
}

RunPlan RunPlanner::evaluation_plan() const {
  RunPlan found{.plan = one_stage(model, request.plan.precision.value_or(Precision::Float32)),
                .mini_batch_size = batch_size_of(request),
                .plan_request = options::plan_request(request)};
  set_sync(request.plan, found.plan, listener);
  return found;
}

RunPlan RunPlanner::plan() const {
  if (job != nullptr || stop == nullptr) return plan_of_job();
  try {
    if (!*stop) return plan_of_job();
  } catch (const RuntimeError&) {
    if (!*stop) throw;
  }
  RunPlan found = evaluation_plan();
  if (const std::string saved = plan_of_checkpoint(found.plan_request); !saved.empty()) {
    found.plan = plan::parse_plan(saved, "the checkpoint's plan");
    set_sync(request.plan, found.plan, listener);
  } else {
    // So that a run that resumes plans anew.
    found.plan_request = "no plan: stopped before one was made";
    found.plan.cluster = cluster::local_cluster(1, 1);
  }
  return found;
}

}  // namespace penstock::job
