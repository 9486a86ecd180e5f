#include "tools/penstock/auto_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "penstock/model/optimizer.h"
#include "penstock/model/profiler.h"
#include "penstock/planner/planner.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"
#include "penstock/util/rounding.h"
#include "tools/penstock/progress.h"

namespace penstock::tool {

namespace {

profile::Profile measure(const model::Model& model, const AutoPlanRequest& request,
                         int64_t micro_batches) {
  ProgressBar bar("profiling " + model.name());
  model::ProfilerOptions options;
  options.batch_size =
      ceil_div(request.mini_batch_size, std::min(micro_batches, request.mini_batch_size));
  options.samples = request.profile_samples;
  // A tenth of the training, whose micro-batches all workers share; every two samples take three
  // passes.
  constexpr int64_t kMicroBatchesPerSample = 15;
  options.least_time = std::chrono::milliseconds(1000);
  options.most_samples = static_cast<int>(
      std::clamp<int64_t>(request.training_samples / options.batch_size /
                              std::max(request.workers, 1) / kMicroBatchesPerSample,
                          0, options.most_samples));
  options.threads = request.threads_per_worker;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  options.concurrency =
      std::clamp(cores / std::max(request.threads_per_worker, 1), 1, std::max(request.workers, 1));
  options.seed = request.seed;
  options.optimizer = request.optimizer;
  options.progress = [&bar](int done, int total) { bar.update(done, total); };
  return model::measure_profile(model, options);
}

/// Micro-batches per mini-batch that the strategy will probably run with.
int64_t expected_micro_batches(const AutoPlanRequest& request) {
  if (request.micro_batches > 0) return request.micro_batches;
  const auto strategy = plan::parse_strategy_choice(request.strategy);
  return strategy ? planner::usual_micro_batches(*strategy, request.workers) : 1;
}

}  // namespace

plan::Plan auto_plan(const model::Model& model, const AutoPlanRequest& request) {
  int64_t micro_batches = expected_micro_batches(request);
  const bool given = !request.profile_path.empty();
  profile::Profile profile =
      given ? profile::load_profile(request.profile_path) : measure(model, request, micro_batches);
  if (given && !(profile.graph == model.graph())) {
    throw ConfigError(
        fmt::format("the profile {} is of model '{}' with {} layers, not of '{}' with {} layers as "
                    "it is used here",
                    request.profile_path, profile.model, profile.graph.num_layers(), model.name(),
                    model.graph().num_layers()));
  }
  planner::PlanOptions options{.strategy = plan::parse_strategy_choice(request.strategy),
                               .weights = request.weights,
                               .micro_batches = request.micro_batches};
  // The mini-batch is given: more micro-batches would be smaller ones, which the profile does not
  // know.
  options.synchronous_pipelines = false;
  options.chunks = request.chunks;
  options.slack = request.slack;
  options.global_norm = request.global_norm;
  options.gradient_groups = request.gradient_groups;
  options.optimizer_state_per_weight =
      static_cast<double>(model::make_optimizer(request.optimizer)->state_names().size());
  const auto cluster = [&]() {
    return cluster::local_cluster(request.workers, profile.copy_bandwidth_bytes_per_s);
  };
  planner::PlanResult result = planner::make_plan(profile, cluster(), options);
  if (!result.plan) throw ConfigError("no plan: " + result.reason);
  if (!given && result.plan->micro_batches != micro_batches) {
    micro_batches = result.plan->micro_batches;
    profile = measure(model, request, micro_batches);
    options.strategy = result.plan->strategy;
    options.micro_batches = micro_batches;
    if (traits(result.plan->strategy).takes_slack) options.slack = result.plan->slack;
    std::vector<plan::Alternative> alternatives = std::move(result.plan->alternatives);
    result.plan = planner::price_placed_plan(profile, cluster(), result.plan->stages,
                                             result.plan->worker_of_replica, options);
    if (result.plan->alternatives.empty()) result.plan->alternatives = std::move(alternatives);
  }
  return scale_plan(std::move(*result.plan), request.mini_batch_size);
}

plan::Plan scale_plan(plan::Plan plan, int64_t mini_batch_size) {
  const int64_t wanted = ceil_div(mini_batch_size, std::min(plan.micro_batches, mini_batch_size));
  if (wanted == plan.micro_batch_size) return plan;
  const double factor = static_cast<double>(wanted) / static_cast<double>(plan.micro_batch_size);
  const auto scale = [factor](int64_t& value) {
    value = nearest(static_cast<double>(value) * factor);
  };
  for (plan::Stage& stage : plan.stages) {
    scale(stage.forward_ns);
    scale(stage.backward_ns);
    scale(stage.backward_weight_ns);
    scale(stage.stash_bytes);
  }
  for (plan::Link& link : plan.links) scale(link.bytes);
  scale(plan.bottleneck_ns);
  plan.micro_batch_size = wanted;
  plan.alternatives.clear();  // priced for the other size
  plan.notes.push_back(
      fmt::format("times scaled in proportion to micro-batches of {} samples", wanted));
  return plan;
}

}  // namespace penstock::tool
