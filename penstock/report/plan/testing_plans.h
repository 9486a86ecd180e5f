// What the reports' tests share: plans to draw (ordinary ones, very large ones, and ones made to do
// harm), and a count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/plan/plan.h"

namespace penstock::report {

/// How often `part` occurs in `text`.
inline size_t occurrences(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// The paper's 15-1 of VGG-16 on four servers of four, with alternatives and notes.
inline plan::Plan vgg_plan() {
  plan::Plan plan;
  plan.model = "vgg16";
  plan.strategy = plan::Strategy::OneFOneB;
  plan.weights = plan::WeightPolicy::Stash;
  plan.explanation.cost_model = "penstock";
  plan.micro_batch_size = 64;
  plan.micro_batches = 15;
  plan.depth = 2;
  plan.cluster.levels = {{"server", 4, 12'000'000'000, 5'000, false},
                         {"rack", 4, 1'250'000'000, 20'000, false}};
  plan.cluster.device = {"v100", 16'000'000'000, 1.0};
  plan.stages = {{.layers = {"conv1_1", "relu1_1", "conv1_2", "pool5"},
                  .replicas = 15,
                  .forward_ns = 230'000'000,
                  .backward_ns = 460'000'000,
                  .step_ns = 3'000'000,
                  .sync_ns = 40'000'000,
                  .weight_bytes = 60'000'000,
                  .stash_bytes = 1'000,
                  .memory_bytes = 4'240'000'000,
                  .first_worker = 0},
                 {.layers = {"fc6", "fc7", "fc8"},
                  .replicas = 1,
                  .forward_ns = 12'000'000,
                  .backward_ns = 24'000'000,
                  .step_ns = 3'000'000,
                  .weight_bytes = 470'000'000,
                  .stash_bytes = 1'000,
                  .memory_bytes = 2'100'000'000,
                  .first_worker = 15}};
  plan.links = {{StageId{0}, StageId{1}, 6'420'000}};
  plan.prediction.bottleneck_ns = 48'866'667;
  plan.prediction.throughput_samples_per_s = 1301;
  plan.prediction.latency_ns = 1'200'000'000;
  plan.prediction.idle_share = 0.12;
  plan.prediction.bytes_per_sample = {1'200'000, 3'400'000};
  plan.explanation.alternatives = {{plan::Strategy::Serial,
                                    "1",
                                    92.7,
                                    plan::WeightPolicy::Flush,
                                    1,
                                    690'000'000,
                                    5'100'000'000,
                                    0,
                                    {0, 0},
                                    ""},
                                   {plan::Strategy::DataParallel,
                                    "16",
                                    704,
                                    plan::WeightPolicy::Flush,
                                    16,
                                    800'000'000,
                                    5'100'000'000,
                                    0.45,
                                    {2'100'000, 6'500'000},
                                    "45 % of its time is gradient synchronisation"},
                                   {plan::Strategy::ModelParallel,
                                    "1-1-1-1-1-1-1-1",
                                    90,
                                    plan::WeightPolicy::Flush,
                                    1,
                                    900'000'000,
                                    1'000'000'000,
                                    0.94,
                                    {1e6, 2e6},
                                    "is 0.069x as fast: one micro-batch is under way at a time."},
                                   {plan::Strategy::OneFOneB,
                                    "15-1",
                                    1301,
                                    plan::WeightPolicy::Stash,
                                    15,
                                    1'200'000'000,
                                    4'240'000'000,
                                    0.12,
                                    {1'200'000, 3'400'000},
                                    "Synchronises 8x less than dp."},
                                   {plan::Strategy::TwoBuffered,
                                    "15-1",
                                    0,
                                    plan::WeightPolicy::TwoBuffered,
                                    0,
                                    0,
                                    0,
                                    0,
                                    {},
                                    "needs 17 GB"}};
  plan.explanation.notes = {
      "Data parallelism over 16 workers is 0.54x as fast: 45% of its time is gradient "
      "synchronisation."};
  return plan;
}

/// `stages` stages in a chain, `replicas` workers each, on servers of 8 workers, 8 servers to a
/// rack, as many racks as needed.
inline plan::Plan chain_plan(int stages, int replicas) {
  plan::Plan plan = vgg_plan();
  plan.model = "chain";
  plan.micro_batches = replicas;
  const int racks = (stages * replicas + 63) / 64;
  plan.cluster.levels = {{"server", 8, 100'000'000'000, 2'000, false},
                         {"rack", 8, 12'000'000'000, 5'000, false},
                         {"hall", racks, 5'000'000'000, 9'000, false}};
  plan.prediction.bytes_per_sample = {1e6, 2e6, 3e6};
  plan.explanation.alternatives.clear();
  plan.stages.clear();
  plan.links.clear();
  for (int s = 0; s < stages; ++s) {
    const std::string name = "layer_with_a_rather_long_name_" + std::to_string(s);
    plan.stages.push_back(
        {.layers = {name + "_first", name + "_middle", name + "_last"},
         .replicas = replicas,
         // twice where it recomputes
         .forward_ns = (10'000'000 + s * 7919 % 13 * 1'000'000) / (s % 5 == 3 ? 2 : 1),
         .backward_ns = 20'000'000,
         .step_ns = 1'000'000,
         .sync_ns = replicas > 1 ? 3'000'000 : 0,
         .weight_bytes = 60'000'000,
         .stash_bytes = 1'000,
         .memory_bytes = 2'000'000'000,
         .first_worker = s * replicas,
         .recompute = s % 5 == 3});
    if (s > 0) plan.links.push_back({StageId{s - 1}, StageId{s}, 100'000 * (1 + s % 20)});
  }
  return plan;
}

/// `workers` workers that hold two stages each in a V, on servers of 4.
inline plan::Plan v_plan(int workers) {
  plan::Plan plan = chain_plan(2 * workers, 1);
  plan.strategy = plan::Strategy::ZbV;
  plan.weights = plan::WeightPolicy::Flush;
  plan.micro_batches = 4 * workers;
  plan.cluster.levels = {{"server", 4, 100'000'000'000, 2'000, false},
                         {"rack", (workers + 3) / 4, 12'000'000'000, 5'000, false}};
  plan.prediction.bytes_per_sample = {1e6, 2e6};
  for (int s = 0; s < 2 * workers; ++s) {
    plan.stages[static_cast<size_t>(s)].first_worker = -1;
    plan.worker_of_replica.push_back(s < workers ? s : 2 * workers - 1 - s);
  }
  return plan;
}

/// Every text is an attack on a page, a picture or a terminal; every number is as large as it gets.
inline plan::Plan hostile_plan() {
  const std::string script = "<script>alert('x')</script>";
  plan::Plan plan = vgg_plan();
  plan.model = script + "\"&\x01\xff";
  plan.explanation.cost_model = "]]>";
  plan.cluster.levels[0].name = "<i onload=\"x\">";
  plan.cluster.levels[1].name = std::string(500, 'W');
  plan.stages[0].layers = {script, "\xc3\x28",
                           "\xe2\x80\xae"
                           "txt.exe"};
  plan.stages[1].layers = {std::string(300, 'W')};
  for (plan::Stage& stage : plan.stages) {
    stage.forward_ns = stage.backward_ns = INT64_MAX / 2;
    stage.sync_ns = stage.step_ns = stage.memory_bytes = stage.weight_bytes = INT64_MAX;
  }
  plan.links[0].bytes = INT64_MAX;
  plan.prediction.throughput_samples_per_s = 1e300;
  plan.prediction.bytes_per_sample = {1e300, 1e300};
  plan.explanation.alternatives = {{plan::Strategy::ZbV,
                                    script,
                                    1e300,
                                    {},
                                    INT64_MAX,
                                    INT64_MAX,
                                    INT64_MAX,
                                    1e300,
                                    {1e300},
                                    script}};
  plan.explanation.notes = {script, "\x1b]0;title\x07"};
  return plan;
}

/// All of the above and the small ones: one worker, one replicated stage, skips, no places, nothing
/// at all. With names for messages.
inline std::vector<std::pair<std::string, plan::Plan>> sample_plans() {
  std::vector<std::pair<std::string, plan::Plan>> plans = {
      {"vgg", vgg_plan()}, {"hostile", hostile_plan()}, {"empty", {}}};
  for (const auto& [stages, replicas] : {std::pair(1, 1),
                                         {1, 40},
                                         {3, 2},
                                         {4, 1},
                                         {7, 3},
                                         {16, 1},
                                         {17, 2},
                                         {64, 4},
                                         {65, 4},
                                         {3000, 1}}) {
    plans.emplace_back(std::to_string(stages) + "x" + std::to_string(replicas),
                       chain_plan(stages, replicas));
  }
  plan::Plan skips = chain_plan(7, 2);
  for (int s = 2; s < 7; ++s) skips.links.push_back({StageId{0}, StageId{s}, 3'000'000 * s});
  plans.emplace_back("skips", skips);
  plan::Plan gaps = chain_plan(6, 1);
  for (size_t s = 0; s < gaps.stages.size(); ++s)
    gaps.stages[s].first_worker = static_cast<int>(3 * s);
  plans.emplace_back("gaps", gaps);
  plan::Plan unplaced = chain_plan(5, 1);
  for (plan::Stage& stage : unplaced.stages) stage.first_worker = -1;
  unplaced.cluster.levels = {{"", 2, 1, 0, false}};
  plans.emplace_back("too small a cluster", unplaced);
  for (const int workers : {1, 2, 7, 16, 300})
    plans.emplace_back("V of " + std::to_string(workers), v_plan(workers));
  plan::Plan homeless = v_plan(4);
  homeless.worker_of_replica = {0, 1, 2};
  plans.emplace_back("too few hosts", homeless);
  homeless.worker_of_replica = {0, 1, 2, 3, 3, 2, -1, 1'000'000'000};
  plans.emplace_back("hosts outside the cluster", homeless);
  plan::Plan threads = chain_plan(2, 1);
  threads.cluster = cluster::local_cluster(2, 9'000'000'000);
  plans.emplace_back("threads", threads);
  return plans;
}

/// vgg_plan() with two teams of four for its first stage and one of two for the second.
inline plan::Plan team_plan() {
  plan::Plan plan = vgg_plan();
  plan.stages[0].replicas = 2;
  plan.stages[0].tensor = 4;
  plan.stages[0].team_bytes = 5'000'000;
  plan.stages[1].tensor = 2;
  plan.stages[1].first_worker = 8;
  return plan;
}

}  // namespace penstock::report
