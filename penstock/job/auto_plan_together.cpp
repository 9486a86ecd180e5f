#include "penstock/job/auto_plan_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "penstock/job/auto_plan.h"
#include "penstock/job/measured_profile.h"
#include "penstock/job/plan_together.h"
#include "penstock/job/profile_together.h"
#include "penstock/probe/job_links.h"

namespace penstock::job {

namespace {

/// For what joins the ranks: in hosts, and again between them.
constexpr std::chrono::milliseconds kLinkTime{300};

}  // namespace

plan::Plan auto_plan_together(Job& job, const model::Model& model, AutoPlanRequest request) {
  // What all ranks do, the first one tells.
  if (!job.is_first()) request.listener = {};
  const int training = job.ranks() - job.servers();
  request.local_workers = std::max(1, request.workers / training);
  request.listener.tell(fmt::format("measuring what joins the {} ranks\n", job.ranks()));
  const probe::JobLinks links = job.measure_links(
      kLinkTime, request.local_workers * request.threads_per_worker, request.stop);
  request.listener.tell(probe::links_text(links) + '\n');
  std::vector<double> speeds;
  request.cluster = [&](int workers, int64_t copy_bandwidth_bytes_per_s) {
    cluster::Cluster cluster =
        probe::cluster_of(links, workers, copy_bandwidth_bytes_per_s, speeds);
    for (cluster::Level& level : cluster.levels) level.sums_wait = request.sums_wait;
    return cluster;
  };
  const MeasureFor measure = [&](int64_t micro_batches) {
    const model::ProfilerOptions profiler = profiler_options(request, micro_batches);
    const int most =
        std::min(links.ranks_per_host, ranks_that_measure(profiler.concurrency, profiler.threads));
    const ProfileCache cache(cache_choice(request.profile_cache));
    const auto of = [&](const profile::LayerRange& layers) {
      model::ProfilerOptions own = profiler;
      own.layers = layers;
      return own;
    };
    const double others = (most - 1) * profiler.concurrency * profiler.threads;
    std::optional<std::chrono::system_clock::time_point> measured;
    const JobProfile result = measure_together(
        job, model::bytes_to_measure(model, profiler), most,
        [&](const profile::LayerRange& layers) {
          return measured_to_keep(model, of(layers), request.listener, cache, others);
        },
        [&](const profile::LayerRange& layers) -> std::optional<profile::Share> {
          std::optional<CachedProfile> kept = kept_share(model, of(layers), cache);
          if (!kept) return std::nullopt;
          measured = kept->measured;
          return std::move(kept->share);
        });
    if (result.is_kept && measured) request.listener.tell(kept_text(*measured, cache));
    return result;
  };
  const auto make = [&](const MeasureFor& measure_all) {
    request.measure = [&](int64_t micro_batches) {
      const JobProfile measured = measure_all(micro_batches);
      speeds = measured.speed_of_host;
      request.listener.tell(speeds_text(measured));
      return measured.profile;
    };
    return plan::to_json(auto_plan(model, request));
  };
  return plan::parse_plan(plan_together(job, make, measure), "the plan of rank 0");
}

}  // namespace penstock::job
