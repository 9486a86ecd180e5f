#include "penstock/job/auto_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "penstock/job/measured_profile.h"
#include "penstock/job/own_cluster.h"
#include "penstock/job/token_width.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/model/precision.h"
#include "penstock/options/check_profile.h"
#include "penstock/plan/low_rank.h"
#include "penstock/planner/planner.h"
#include "penstock/profile/scale.h"
#include "penstock/shard/tensor_shares.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/units.h"

namespace penstock::job {

namespace {

/// Samples of a micro-batch, of which a mini-batch has no more than samples.
int64_t micro_batch_size(const AutoPlanRequest& request, int64_t micro_batches) {
  return ceil_div(request.mini_batch_size, std::min(micro_batches, request.mini_batch_size));
}

profile::Profile measure(const model::Model& model, const AutoPlanRequest& request,
                         int64_t micro_batches) {
  if (request.measure) return request.measure(micro_batches);
  const model::ProfilerOptions options = profiler_options(request, micro_batches);
  const ProfileCache cache(cache_choice(request.profile_cache));
  if (auto kept = kept_share(model, options, cache)) {
    request.listener.tell(kept_text(kept->measured, cache));
    return std::move(kept->share.profile);
  }
  return measured_to_keep(model, options, request.listener, cache).profile;
}

/// Micro-batches per mini-batch that the strategy will probably run with.
int64_t expected_micro_batches(const AutoPlanRequest& request) {
  if (request.micro_batches) return *request.micro_batches;
  // Workers that are to be used have one each at least.
  return request.strategy ? planner::usual_micro_batches(*request.strategy, request.workers)
                          : std::max(request.workers, 1);
}

planner::Choice sharding(const AutoPlanRequest& request) {
  const std::string why_not = model::why_not_shared(request.optimizer);
  if (why_not.empty())
    return request.shard_optimizer ? planner::Choice::Always : planner::Choice::Auto;
  if (!request.shard_optimizer) return planner::Choice::Never;
  throw ConfigError(fmt::format("--shard-optimizer: {}; leave the option out", why_not));
}

planner::PlanOptions options_of(const model::Model& model, const AutoPlanRequest& request) {
  planner::PlanOptions options{.strategy = request.strategy,
                               .weights = request.weights,
                               .compensation = request.compensation,
                               .sync = request.sync,
                               .gradient_precision = request.gradient_precision,
                               .boundary = request.boundary,
                               .micro_batches = request.micro_batches};
  // The mini-batch is given: more micro-batches would be smaller ones, which the profile does not
  // know.
  options.synchronous_pipelines = false;
  options.time_limit = planner::kUsualTimeLimit;
  options.shard_optimizer = sharding(request);
  options.share_weights = model::why_not_shared(request.optimizer).empty();
  options.chunks = request.chunks;
  options.slack = request.slack;
  options.keep = request.keep;
  options.global_norm = request.global_norm;
  options.gradient_groups = request.gradient_groups;
  options.straight = request.straight;
  options.token_width = token_width(model);
  options.tensor = request.tensor;
  options.sequence = request.sequence ? planner::Choice::Always : planner::Choice::Never;
  options.optimizer_state_per_weight = model::state_per_weight(
      model, train::compensated_optimizer(request.optimizer, request.compensation));
  if (request.sync && request.sync->sync == plan::GradientSync::DiLoCo)
    options.optimizer_state_per_weight += request.outer.state_per_weight();
  if (request.sync && request.sync->sync == plan::GradientSync::PowerSgd)
    options.optimizer_state_per_weight += plan::kErrorsPerWeight;
  return options;
}

int64_t product_of(const model::Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, saturating_mul);
}

/// Layers of the same names and connections may still be wider ones. Throws ConfigError naming the
/// first that differs.
void check_sizes(const profile::Profile& profile, const model::Model& model,
                 const std::string& path) {
  constexpr int64_t kBytes = 4;  // of a number
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerId id{l};
    const profile::LayerCost& cost = profile.costs[id.index()];
    const auto check = [&](const char* what, int64_t found, int64_t expected) {
      if (found == expected) return;
      throw ConfigError(fmt::format(
          "the profile {} is of another '{}': its layer '{}' has {} of {}, that of the model as it "
          "is used here {}",
          path, model.name(), model.graph().layer(id).name, what, format_bytes(found),
          format_bytes(expected)));
    };
    int64_t weights = 0;
    for (const model::ParameterSpec& weight : model.layer(id).parameters())
      weights = saturating_add(weights, saturating_mul(kBytes, product_of(weight.shape)));
    check("weights", cost.weight_bytes, weights);
    if (profile.batch_size == 0 || !profile.lengths.empty()) continue;
    const std::vector<model::Shape>& shapes = model.output_shapes(id);
    for (size_t o = 0; o < shapes.size() && o < cost.output_bytes.size(); ++o)
      check("outputs per sample", cost.output_bytes[o] / profile.batch_size,
            saturating_mul(
                model::output_number_bytes(model, {id, static_cast<int>(o)}, profile.precision),
                product_of(shapes[o])));
  }
}

/// A line that says so where the profile has sequences of other lengths than the run.
std::string other_lengths_text(const profile::Profile& profile, const AutoPlanRequest& request) {
  if (profile.lengths == request.lengths) return {};
  const auto text = [](const std::vector<profile::LengthGroup>& lengths) {
    return lengths.empty() ? std::string("the model's full length")
                           : "lengths of " + profile::lengths_text(lengths);
  };
  return fmt::format(
      "note: {} was measured with sequences of {}, and the run has {}: expect other times than "
      "predicted\n",
      request.profile_path, text(profile.lengths), text(request.lengths));
}

plan::Plan best_plan(const model::Model& model, profile::Profile profile,
                     const AutoPlanRequest& request, const planner::PlanOptions& options) {
  if (options.tensor != 1) shard::add_tensor_shares(profile, model);
  const int64_t copies = profile.copy_bandwidth_bytes_per_s;
  const cluster::Cluster cluster =
      request.cluster
          ? request.cluster(request.workers, copies)
          : own_cluster(request.workers, copies, profile.hand_over_ns, request.between_gpus);
  planner::PlanResult result = planner::make_plan(profile, cluster, options);
  if (!result.plan) throw NoAnswer("no plan: " + result.reason);
  return *std::move(result.plan);
}

}  // namespace

model::ProfilerOptions profiler_options(const AutoPlanRequest& request, int64_t micro_batches) {
  model::ProfilerOptions options;
  options.batch_size = micro_batch_size(request, micro_batches);
  options.samples = request.profile_samples;
  options.lengths = request.lengths;
  // A tenth of the training, whose micro-batches all workers share; every two samples take three
  // passes.
  constexpr int64_t kMicroBatchesPerSample = 15;
  options.least_time = std::chrono::milliseconds(1000);
  options.wanted_error = 0.02;
  options.longest = std::chrono::milliseconds(4000);
  options.stop = request.stop;
  options.most_samples = static_cast<int>(
      std::clamp<int64_t>(request.training_samples / options.batch_size /
                              std::max(request.workers, 1) / kMicroBatchesPerSample,
                          0, options.most_samples));
  options.threads = request.threads_per_worker;
  options.loss = request.loss;
  options.precision = request.precision;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int local_workers = request.local_workers > 0 ? request.local_workers : request.workers;
  options.concurrency =
      std::clamp(cores / std::max(request.threads_per_worker, 1), 1, std::max(local_workers, 1));
  options.seed = request.seed;
  options.optimizer = request.optimizer;
  if (!request.device.empty()) {
    options.device = request.device;
    options.device_graphs = request.device_graphs;
    options.concurrency = 1;
  }
  return options;
}

plan::Plan auto_plan(const model::Model& model, const AutoPlanRequest& request) {
  const int64_t micro_batches = expected_micro_batches(request);
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
  if (given) options::check_precision(profile, request.precision, request.profile_path);
  if (given) {
    request.listener.tell(other_graphs_text(profile, request.profile_path, request.device_graphs));
    check_sizes(profile, model, request.profile_path);
    request.listener.tell(other_lengths_text(profile, request));
  }
  planner::PlanOptions options = options_of(model, request);
  plan::Plan plan = best_plan(model, profile, request, options);
  const int64_t profiled = plan.micro_batch_size;
  const int64_t wanted = micro_batch_size(request, plan.micro_batches);
  const bool resized = wanted != profiled;
  if (resized || plan.micro_batches > request.mini_batch_size) {
    // What was found holds for other steps only: everything is searched and priced again, for as
    // many micro-batches as this choice has.
    options.micro_batches = std::min(plan.micro_batches, request.mini_batch_size);
    if (resized && given) {
      profile = profile::scaled_to(profile, wanted);
    } else if (resized) {
      request.listener.tell(
          fmt::format("{} has {} per step: measuring again with micro-batches of {}\n",
                      to_string(plan.strategy), plural(*options.micro_batches, "micro-batch"),
                      plural(wanted, "sample")));
      profile = measure(model, request, *options.micro_batches);
    }
    plan = best_plan(model, profile, request, options);
    if (resized && given) {
      plan.explanation.notes.push_back(fmt::format(
          "{} has micro-batches of {}: its times and sizes are scaled in proportion to those of "
          "{}.",
          request.profile_path, plural(profiled, "sample"), wanted));
    }
  }
  return plan;
}

}  // namespace penstock::job
