#include "tools/penstock/job_auto_plan.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "tools/penstock/auto_plan.h"
#include "tools/penstock/job_links.h"
#include "tools/penstock/job_plan.h"
#include "tools/penstock/job_profile.h"
#include "tools/penstock/measured_profile.h"

namespace penstock::tool {

namespace {

/// For what joins the ranks: in hosts, and again between them.
constexpr std::chrono::milliseconds kLinkTime{300};

}  // namespace

plan::Plan auto_plan_together(Job& job, const model::Model& model, AutoPlanRequest request) {
  const bool says = job.is_first() && !request.is_quiet;
  const int training = job.ranks() - job.servers();
  request.local_workers = std::max(1, request.workers / training);
  const JobLinks links =
      job.measure_links(kLinkTime, request.local_workers * request.threads_per_worker);
  if (says) std::cerr << links_text(links) << '\n';
  std::vector<double> speeds;
  request.cluster = [&](int workers, int64_t copy_bandwidth_bytes_per_s) {
    cluster::Cluster cluster = cluster_of(links, workers, copy_bandwidth_bytes_per_s, speeds);
    for (cluster::Level& level : cluster.levels) level.sums_wait = request.sums_wait;
    return cluster;
  };
  const MeasureFor measure = [&](int64_t micro_batches) {
    const model::ProfilerOptions profiler = profiler_options(request, micro_batches);
    const int most =
        std::min(links.ranks_per_host, ranks_that_measure(profiler.concurrency, profiler.threads));
    return measure_together(job, most, [&] {
      return says ? measured_with_progress(model, profiler) : measured_quietly(model, profiler);
    });
  };
  const auto make = [&](const MeasureFor& measure_all) {
    request.measure = [&](int64_t micro_batches) {
      const JobProfile measured = measure_all(micro_batches);
      speeds = measured.speed_of_host;
      if (const std::string text = speeds_text(measured); says && !text.empty())
        std::cerr << text << '\n';
      return measured.profile;
    };
    return plan::to_json(auto_plan(model, request));
  };
  return plan::parse_plan(plan_together(job, make, measure), "the plan of rank 0");
}

}  // namespace penstock::tool
