#include "penstock/job/stream/stream_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/job/own_cluster.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/plan/shared_weights.h"
#include "penstock/planner/planner.h"
#include "penstock/report/text/text.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/units.h"

namespace penstock::job {

namespace {

/// Measurements of fewer frames say little.
constexpr int64_t kLeastFrames = 20;
/// More stages than this are not looked for when a frame rate cannot be reached.
constexpr int kMostStagesAdvised = 64;

std::optional<plan::Plan> plan_with(const profile::Profile& profile,
                                    const StreamPlanRequest& request, int workers) {
  planner::PlanOptions options{
      .strategy = workers == 1 ? plan::Strategy::Serial : plan::Strategy::Online,
      .weights = workers == 1 ? std::nullopt : request.weights,
      .straight = workers > 1,
      .micro_batches = 1};
  options.optimizer_state_per_weight = model::usual_state(request.optimizer);
  const cluster::Cluster cluster = own_cluster(workers, profile.copy_bandwidth_bytes_per_s,
                                               profile.hand_over_ns, request.between_gpus);
  planner::PlanResult result = planner::make_plan(profile, cluster, options);
  // What no policy of a stream can learn.
  if (workers > 1 && result.plan && plan::stages_share_weights(*result.plan, profile.graph))
    return std::nullopt;
  if (result.plan)
    result.plan->explanation.alternatives.clear();  // ways to train, none of them for a stream
  return std::move(result.plan);
}

double fps_of(const plan::Plan& plan) { return plan.prediction.throughput_samples_per_s; }

int most_stages(const profile::Profile& profile, int workers) {
  return std::clamp(profile.graph.num_layers(), 1, workers);
}

int64_t work_ns(const profile::LayerCost& cost) {
  return saturating_add(saturating_add(cost.forward_ns, cost.backward_ns), cost.step_ns);
}

double slowest_tick_ns(const std::vector<stream::StageTimes>& measured) {
  double slowest = 0;
  for (const stream::StageTimes& stage : measured) slowest = std::max(slowest, stage.tick_ns());
  return slowest;
}

/// Taken to need time in proportion to their pixels.
std::string smaller_frames_text(const StreamPlanRequest& request, double reached) {
  const double side = std::sqrt(reached / request.fps);
  const auto width = static_cast<int>(request.size.width * side);
  const auto height = static_cast<int>(request.size.height * side);
  constexpr int kLeastSide = 8;
  if (std::min(width, height) < kLeastSide) return "";
  return fmt::format(
      "  by their number of pixels, frames of about {}x{} would, not {}x{} (--size)\n", width,
      height, request.size.width, request.size.height);
}

}  // namespace

plan::Plan stream_plan(const profile::Profile& profile, const StreamPlanRequest& request) {
  std::optional<plan::Plan> best;
  const bool is_alone = traits(request.strategy).extent == plan::Extent::OneWorker;
  const int most = is_alone ? 1 : most_stages(profile, request.workers);
  for (int workers = 1; workers <= most; ++workers) {
    std::optional<plan::Plan> plan = plan_with(profile, request, workers);
    if (!plan) continue;
    // A further stage has to be worth its thread.
    constexpr double kWorth = 1.01;
    if (!best || fps_of(*plan) > kWorth * fps_of(*best)) best = std::move(plan);
    if (request.fps > 0 && fps_of(*best) >= request.fps) break;
  }
  if (!best) throw NoAnswer("no plan: the planner found none for this model and these workers");
  return *std::move(best);
}

std::string frame_rate_text(const plan::Plan& plan, const profile::Profile& profile,
                            const StreamPlanRequest& request) {
  const double reached = fps_of(plan);
  const int stages = static_cast<int>(plan.stages.size());
  if (request.fps <= 0) {
    return fmt::format("{}: {:.1f} frames/s predicted\n", report::plural(stages, "stage"), reached);
  }
  if (reached >= request.fps) {
    return fmt::format(
        "{}: {:.1f} frames/s predicted, {:.1f} wanted\n",
        stages == 1 ? "1 stage is enough" : fmt::format("{} stages are enough", stages), reached,
        request.fps);
  }
  std::string text = fmt::format(
      "{:.1f} frames/s cannot be reached with {}: {:.1f} predicted, {:.1f} times too slow\n",
      request.fps, report::plural(request.workers, "worker"), reached, request.fps / reached);
  text += smaller_frames_text(request, reached);
  const int most = most_stages(profile, kMostStagesAdvised);
  for (int workers = request.workers + 1; workers <= most; ++workers) {
    const auto wider = plan_with(profile, request, workers);
    if (wider && fps_of(*wider) >= request.fps) {
      return text + fmt::format("  {} would reach it ({:.1f}), each on a {} of its own\n",
                                report::plural(workers, "worker"), fps_of(*wider),
                                request.device.empty() ? "core" : "GPU");
    }
  }
  const auto slowest =
      std::max_element(profile.costs.begin(), profile.costs.end(),
                       [](const auto& a, const auto& b) { return work_ns(a) < work_ns(b); });
  const LayerId layer{static_cast<int32_t>(slowest - profile.costs.begin())};
  return text + fmt::format(
                    "  no number of workers would: layer '{}' alone takes {} of {}; take smaller "
                    "frames or a smaller model{}\n",
                    profile.graph.layer(layer).name, format_duration(work_ns(*slowest)),
                    format_duration(rounded_down(1e9 / request.fps)),
                    request.device.empty() ? ", or more --threads" : "");
}

profile::Profile adjusted(profile::Profile profile, const plan::Plan& plan,
                          const std::vector<stream::StageTimes>& measured) {
  const std::vector<StageId> stage_of_layer = plan::stage_of_layer(plan, profile.graph);
  std::vector<double> planned(plan.stages.size(), 0.0);
  for (size_t l = 0; l < profile.costs.size(); ++l)
    planned[stage_of_layer[l].index()] += static_cast<double>(work_ns(profile.costs[l]));
  for (size_t l = 0; l < profile.costs.size(); ++l) {
    const stream::StageTimes& stage = measured[stage_of_layer[l].index()];
    const double expected = planned[stage_of_layer[l].index()];
    if (expected <= 0) continue;
    const double factor = (stage.forward_ns + stage.backward_ns + stage.step_ns) / expected;
    profile::LayerCost& cost = profile.costs[l];
    for (int64_t* time :
         {&cost.forward_ns, &cost.backward_ns, &cost.backward_weight_ns, &cost.step_ns,
          &cost.loss_ns, &cost.forward_spread_ns, &cost.backward_spread_ns})
      *time = rounded_down(static_cast<double>(*time) * factor);
  }
  return profile;
}

std::optional<plan::Plan> better_plan(const profile::Profile& profile, const plan::Plan& now,
                                      const std::vector<stream::StageTimes>& measured,
                                      const StreamPlanRequest& request, double margin) {
  if (measured.size() != now.stages.size()) return std::nullopt;
  for (const stream::StageTimes& stage : measured) {
    if (stage.frames < kLeastFrames) return std::nullopt;
  }
  const double tick_ns = slowest_tick_ns(measured);
  const double fps = 1e9 / std::max(tick_ns, 1.0);
  // What is fast enough stays.
  if (request.fps > 0 && fps >= request.fps) return std::nullopt;
  plan::Plan plan = stream_plan(adjusted(profile, now, measured), request);
  if (plan.stages == now.stages || fps_of(plan) < (1 + margin) * fps) return std::nullopt;
  return plan;
}

}  // namespace penstock::job
