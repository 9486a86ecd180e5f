#include <gtest/gtest.h>

#include <sstream>

#include "penstock/report/report.h"

namespace penstock::report {
namespace {

plan::Plan small_plan() {
  plan::Plan plan;
  plan.model = "vgg16";
  plan.strategy = "1f1b";
  plan.weights = "stash";
  plan.cost_model = "penstock";
  plan.micro_batch_size = 64;
  plan.micro_batches = 3;
  plan.depth = 2;
  plan.stages = {{.layers = {"conv1", "conv2", "conv3"},
                  .replicas = 3,
                  .forward_ns = 12'000'000,
                  .backward_ns = 24'000'000,
                  .step_ns = 1'000'000,
                  .sync_ns = 2'000'000,
                  .weight_bytes = 60'000'000,
                  .stash_bytes = 5,
                  .memory_bytes = 240'000'000},
                 {.layers = {"fc"}, .replicas = 1, .forward_ns = 4'000'000, .backward_ns = 8'000'000, .memory_bytes = 1'000}};
  plan.links = {{StageId{0}, StageId{1}, 6'400'000}};
  plan.bottleneck_ns = 13'000'000;
  plan.throughput_samples_per_s = 4800.4;
  plan.alternatives = {{"serial", "1", 1333.3}, {"1f1b", "3-1", 4800.4}};
  plan.notes = {
      "Data parallelism over 4 workers would take 1.80x as long: 92% of its time is gradient synchronisation, which is long enough to "
      "wrap."};
  return plan;
}

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Tables, Plan) {
  EXPECT_EQ(plan_table(small_plan()), &R"(
vgg16: 1f1b 3-1 on 4 workers, weights stash, cost model penstock

stage  layers              workers  forward  backward     step     sync  weights   memory
    0  conv1 .. conv3 (3)        3  12.0 ms   24.0 ms  1.00 ms  2.00 ms  60.0 MB   240 MB
    1  fc                        1  4.00 ms   8.00 ms        -        -        -  1.00 kB

link    each way, per micro-batch
0 -> 1                    6.40 MB

3 micro-batches of 64 samples per step, 2 in flight
slowest part 13.0 ms per micro-batch, predicted 4800 samples/s

strategy  workers  samples/s  against this plan
serial    1             1333              0.28x
1f1b      3-1           4800             chosen

notes
  - Data parallelism over 4 workers would take 1.80x as long: 92% of its time is gradient
    synchronisation, which is long enough to wrap.
)"[1]);
}

TEST(Tables, Profile) {
  profile::Profile profile;
  profile.model = "net";
  profile.source = "measured";
  profile.device = "laptop, 1 thread";
  profile.batch_size = 32;
  profile.graph = graph::ModelGraph::build(
      1, {{"conv1", "conv2d", {graph::ValueRef::model_input(0)}, 1}, {"fc", "linear", {{LayerId{0}, 0}}, 1}}, {{LayerId{1}, 0}});
  profile.costs = {{.forward_ns = 3'000'000, .backward_ns = 6'000'000, .output_bytes = {1'000}, .weight_bytes = 0, .stash_bytes = 2'000},
                   {.forward_ns = 1'000'000, .backward_ns = 2'000'000, .output_bytes = {40}, .weight_bytes = 4'000, .stash_bytes = 40}};
  EXPECT_EQ(profile_table(profile), &R"(
net: measured, laptop, 1 thread, 32 samples per micro-batch

layer  kind      forward  backward  share  outputs  weights     kept
conv1  conv2d    3.00 ms   6.00 ms  75.0%  1.00 kB        -  2.00 kB
fc     linear    1.00 ms   2.00 ms  25.0%     40 B  4.00 kB     40 B
total  2 layers  4.00 ms   8.00 ms         1.04 kB  4.00 kB  2.04 kB
)"[1]);
}

TEST(Tables, StayReadableWithLongNamesAndManyStages) {
  plan::Plan plan = small_plan();
  plan.model = std::string(300, 'm');
  plan.stages.assign(1000, {.layers = {std::string(200, 'a'), std::string(200, 'b')},
                            .replicas = 4096,
                            .forward_ns = 99'000'000'000,
                            .backward_ns = 99'000'000'000,
                            .step_ns = 999'000'000,
                            .sync_ns = 999'000'000,
                            .weight_bytes = INT64_MAX,
                            .stash_bytes = INT64_MAX,
                            .memory_bytes = INT64_MAX});
  plan.alternatives = {{"1f1b", plan.config(), 1e12}};
  const std::string text = plan_table(plan);
  EXPECT_NE(text.find("... and 936 more"), std::string::npos);
  expect_narrow(text);
}

TEST(Tables, EmptyValuesAreShownNotCrashed) {
  EXPECT_FALSE(plan_table({}).empty());
  EXPECT_FALSE(profile_table({}).empty());
  expect_narrow(plan_table(small_plan()));
}

}  // namespace
}  // namespace penstock::report
