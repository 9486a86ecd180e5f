#include <gtest/gtest.h>

#include "penstock/report/report.h"

namespace penstock::report {

TEST(ProfileTable, ListsLayersWithSharesAndTotals) {
  profile::Profile profile;
  profile.model = "net";
  profile.source = "measured";
  profile.device = "laptop, 1 thread";
  profile.batch_size = 32;
  profile.graph =
      graph::ModelGraph::build(1,
                               {{"conv1", "conv2d", {graph::ValueRef::model_input(0)}, 1},
                                {"fc", "linear", {{LayerId{0}, 0}}, 1}},
                               {{LayerId{1}, 0}});
  profile.costs = {{.forward_ns = 3'000'000,
                    .backward_ns = 6'000'000,
                    .output_bytes = {1'000},
                    .weight_bytes = 0,
                    .stash_bytes = 2'000},
                   {.forward_ns = 1'000'000,
                    .backward_ns = 2'000'000,
                    .output_bytes = {40},
                    .weight_bytes = 4'000,
                    .stash_bytes = 40}};
  EXPECT_EQ(profile_table(profile), &R"(
net: measured, laptop, 1 thread, 32 samples per micro-batch

layer  kind      forward  backward  share  outputs  weights     kept
conv1  conv2d    3.00 ms   6.00 ms  75.0%  1.00 kB        -  2.00 kB
fc     linear    1.00 ms   2.00 ms  25.0%     40 B  4.00 kB     40 B
total  2 layers  4.00 ms   8.00 ms         1.04 kB  4.00 kB  2.04 kB
)"[1]);
}

TEST(ProfileTable, ShowsTheWeightsPartOfBackwardAndCountsTiedWeightsOnce) {
  profile::Profile profile;
  profile.model = "net";
  profile.source = "measured";
  profile.device = "laptop";
  profile.batch_size = 1;
  profile.graph =
      graph::ModelGraph::build(1,
                               {{"fc1", "linear", {graph::ValueRef::model_input(0)}, 1},
                                {"fc2", "linear", {{LayerId{0}, 0}}, 1, {{0, {LayerId{0}, 0}}}}},
                               {{LayerId{1}, 0}});
  profile.costs.assign(2, {.forward_ns = 1'000'000,
                           .backward_ns = 2'000'000,
                           .backward_weight_ns = 500'000,
                           .output_bytes = {40},
                           .weight_bytes = 4'000,
                           .stash_bytes = 40});
  profile.costs[1].tied_bytes = {3'000};
  EXPECT_EQ(profile_table(profile), &R"(
net: measured, laptop, 1 sample per micro-batch

layer  kind      forward  backward  for weights  share  outputs  weights  kept
fc1    linear    1.00 ms   2.00 ms       500 us  50.0%     40 B  4.00 kB  40 B
fc2    linear    1.00 ms   2.00 ms       500 us  50.0%     40 B  4.00 kB  40 B
total  2 layers  2.00 ms   4.00 ms      1.00 ms            80 B  5.00 kB  80 B
)"[1]);
}

TEST(ProfileTable, SaysWhatTheLossTakes) {
  profile::Profile profile;
  profile.graph = graph::ModelGraph::build(
      1, {{"fc", "linear", {graph::ValueRef::model_input(0)}, 1}}, {{LayerId{0}, 0}});
  profile.costs = {{.forward_ns = 1'000'000, .backward_ns = 2'000'000, .output_bytes = {40}}};
  EXPECT_EQ(profile_table(profile).find("loss"), std::string::npos);
  profile.costs[0].loss_ns = 500'000;
  EXPECT_TRUE(profile_table(profile).ends_with("\nthe loss is 500 us of fc\n"))
      << profile_table(profile);
}

TEST(ProfileTable, OfNothingIsShownNotCrashed) { EXPECT_FALSE(profile_table({}).empty()); }

}  // namespace penstock::report
