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
  Kind kind;
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
  const auto placed = [&](Kind kind, std::vector<int> replicas, int64_t micro_batches,
                          int64_t accumulate, int chunks) {
    return with_placement(kind, shape(std::move(replicas), micro_batches, accumulate), chunks);
  };
  ScheduleShape eager = shape(four, 8, 8);
  eager.slack = 1;
  ScheduleShape recomputing = placed(Kind::ZbV, four, 5, 5, 2);
  recomputing.recompute = {true, false, false, true};
  recomputing.global_norm = true;
  return {
      {"eager-1f1b", Kind::EagerOneFOneB, eager},
      {"interleaved", Kind::Interleaved, placed(Kind::Interleaved, four, 8, 4, 2)},
      {"interleaved-copies", Kind::Interleaved, placed(Kind::Interleaved, {2, 2, 2, 2}, 7, 7, 2)},
      {"zb-h1", Kind::ZbH1, shape(four, 8, 8)},
      {"zb-h1-replicas", Kind::ZbH1, shape({2, 1, 3, 1}, 12, 12)},
      {"zb-h2", Kind::ZbH2, shape(four, 8, 8)},
      {"zb-v", Kind::ZbV, placed(Kind::ZbV, four, 5, 5, 2)},
      {"zb-v-recompute-norm", Kind::ZbV, recomputing},
      {"dualpipe-v", Kind::DualPipeV, placed(Kind::DualPipeV, four, 6, 6, 2)},
      {"chimera", Kind::Chimera, placed(Kind::Chimera, {2, 2, 2, 2}, 8, 8, 1)},
      {"serial", Kind::Serial, shape({1}, 4, 2)},
      {"dp", Kind::DataParallel, shape({4}, 8, 8)},
      {"mp", Kind::ModelParallel, shape(four, 4, 2)},
      {"gpipe", Kind::GPipe, shape(four, 8, 4)},
      {"1f1b-stash", Kind::OneFOneB, shape(four, 8, 1, WeightPolicy::Stash)},
      {"1f1b-vertical-sync", Kind::OneFOneB, shape(four, 8, 1, WeightPolicy::VerticalSync)},
      {"1f1b-latest", Kind::OneFOneB, shape(four, 8, 1, WeightPolicy::Latest)},
      {"1f1b-round-robin", Kind::OneFOneB, shape({2, 1, 3, 1}, 12, 6, WeightPolicy::Stash)},
      {"1f1b-flush", Kind::OneFOneBFlush, shape(four, 8, 4)},
      {"2bw", Kind::TwoBuffered, shape(four, 12, 4, WeightPolicy::TwoBuffered)},
      {"forward-only", Kind::ForwardOnly, shape(four, 4, 4)},
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
