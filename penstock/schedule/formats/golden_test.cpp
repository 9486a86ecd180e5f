// Compares full schedules for 4 stages with the files under tests/golden/schedules.
// PENSTOCK_REGENERATE_GOLDEN=1 rewrites the files instead; review the difference like code.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"

namespace penstock::schedule {
namespace {

struct Golden {
  const char* name;
  Strategy kind;
  ScheduleShape shape;
};

std::vector<Golden> golden_schedules() {
  const std::vector<int> four = {1, 1, 1, 1};
  const auto shape = [](std::vector<int> replicas, int64_t micro_batches, int64_t accumulate,
                        WeightPolicy policy = WeightPolicy::Flush) {
    return ScheduleShape{.replicas = std::move(replicas),
                         .micro_batches = micro_batches,
                         .accumulate = accumulate,
                         .policy = policy};
  };
  const auto placed = [&](Strategy kind, std::vector<int> replicas, int64_t micro_batches,
                          int64_t accumulate, int chunks) {
    return with_placement(kind, shape(std::move(replicas), micro_batches, accumulate), chunks);
  };
  const std::vector<int> eight(8, 1);
  ScheduleShape eager = shape(four, 8, 8);
  eager.slack = 1;
  ScheduleShape recomputing = placed(Strategy::ZbV, four, 5, 5, 2);
  recomputing.recompute = {true, false, false, true};
  recomputing.global_norm = true;
  return {
      {"eager-1f1b", Strategy::EagerOneFOneB, eager},
      {"interleaved", Strategy::Interleaved, placed(Strategy::Interleaved, four, 8, 4, 2)},
      {"interleaved-copies", Strategy::Interleaved,
       placed(Strategy::Interleaved, {2, 2, 2, 2}, 7, 7, 2)},
      {"interleaved-zb", Strategy::InterleavedZb, placed(Strategy::InterleavedZb, four, 8, 8, 2)},
      {"zb-h1", Strategy::ZbH1, shape(four, 8, 8)},
      {"zb-h1-replicas", Strategy::ZbH1, shape({2, 1, 3, 1}, 12, 12)},
      {"zb-h2", Strategy::ZbH2, shape(four, 8, 8)},
      {"zb-v", Strategy::ZbV, placed(Strategy::ZbV, four, 5, 5, 2)},
      {"zb-v-recompute-norm", Strategy::ZbV, recomputing},
      {"v-half", Strategy::VHalf, placed(Strategy::VHalf, eight, 6, 6, 2)},
      {"v-min", Strategy::VMin, placed(Strategy::VMin, eight, 6, 6, 2)},
      {"dualpipe-v", Strategy::DualPipeV, placed(Strategy::DualPipeV, four, 6, 6, 2)},
      {"dualpipe", Strategy::DualPipe, placed(Strategy::DualPipe, {2, 2, 2, 2}, 9, 9, 1)},
      {"chimera", Strategy::Chimera, placed(Strategy::Chimera, {2, 2, 2, 2}, 8, 8, 1)},
      {"serial", Strategy::Serial, shape({1}, 4, 2)},
      {"dp", Strategy::DataParallel, shape({4}, 8, 8)},
      {"mp", Strategy::ModelParallel, shape(four, 4, 2)},
      {"gpipe", Strategy::GPipe, shape(four, 8, 4)},
      {"1f1b-stash", Strategy::OneFOneB, shape(four, 8, 1, WeightPolicy::Stash)},
      {"1f1b-vertical-sync", Strategy::OneFOneB, shape(four, 8, 1, WeightPolicy::VerticalSync)},
      {"1f1b-latest", Strategy::OneFOneB, shape(four, 8, 1, WeightPolicy::Latest)},
      {"1f1b-round-robin", Strategy::OneFOneB, shape({2, 1, 3, 1}, 12, 6, WeightPolicy::Stash)},
      {"1f1b-flush", Strategy::OneFOneBFlush, shape(four, 8, 4)},
      {"2bw", Strategy::TwoBuffered, shape(four, 12, 4, WeightPolicy::TwoBuffered)},
      {"forward-only", Strategy::ForwardOnly, shape(four, 4, 4)},
  };
}

}  // namespace

TEST(GoldenSchedules, EqualTheFiles) {
  const std::filesystem::path folder = PENSTOCK_GOLDEN_DIR;
  const char* flag = std::getenv("PENSTOCK_REGENERATE_GOLDEN");
  const bool regenerate = flag != nullptr && std::string(flag) == "1";
  for (const Golden& golden : golden_schedules()) {
    const std::string text =
        to_text(lower(generate(golden.kind, golden.shape), chain_links(golden.shape.num_stages())));
    const std::filesystem::path path = folder / (std::string(golden.name) + ".txt");
    if (regenerate) {
      std::ofstream(path) << text;
      continue;
    }
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " is missing; run with PENSTOCK_REGENERATE_GOLDEN=1 to write it";
    std::stringstream expected;
    expected << file.rdbuf();
    EXPECT_EQ(text, expected.str()) << path << " differs";
  }
}

}  // namespace penstock::schedule
