#include <gtest/gtest.h>

#include <sstream>

#include "penstock/report/report.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"

namespace penstock::report {
namespace {

constexpr const char* kHeader =
    "# penstock schedule 1\n# replicas: 1 1 1\n# micro-batches: 1  accumulate: 1  weights: "
    "flush\n# lowered: yes\n";

TEST(BlockedGrid, BracketsTheBlockedActionsUnderOneAnother) {
  const schedule::Schedule schedule = schedule::parse_schedule(
      std::string(kHeader) +
          "0RECV_B0,0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0\n2F0,2RECV_F0\n",
      "s.txt");
  EXPECT_EQ(blocked_grid(schedule, {{WorkerId{0}, 0, true}, {WorkerId{1}, 1, true}}), &R"(
w0 *              [0RECV_B0] 0F0 0SEND_F0 0B0
w1 *     1RECV_F0 [1F0]      1SEND_F0 1RECV_B0 1B0 1SEND_B0
w2   2F0 2RECV_F0 end
)"[1]);
}

TEST(BlockedGrid, CutsLongListsToItsWidth) {
  schedule::Schedule schedule =
      schedule::parse_schedule(std::string(kHeader) + "0F0\n1F0\n2F0\n", "s.txt");
  for (auto& list : schedule.workers) list.resize(1000, list[0]);
  for (const int width : {40, 80, 121}) {
    std::istringstream lines(blocked_grid(
        schedule, {{WorkerId{0}, 0}, {WorkerId{1}, 500, true}, {WorkerId{2}, 999}}, width));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
  }
  EXPECT_EQ(blocked_grid(schedule, {{WorkerId{0}, 0}, {WorkerId{1}, 500, true}}, 40), &R"(
w0                  [0F0] 0F0 0F0 0F0 ..
w1 * .. 1F0 1F0 1F0 [1F0] 1F0 1F0 1F0 ..
w2   .. 2F0 2F0 2F0 end
)"[1]);
}

TEST(BlockedGrid, ShowsTheCycleFirstOfManyWorkers) {
  schedule::Schedule schedule{
      .kind = "custom", .shape = {.replicas = std::vector<int>(1000, 1)}, .workers = {}};
  std::vector<BlockedAction> blocked;
  for (int32_t w = 0; w < 1000; ++w) {
    schedule.workers.push_back({{.op = schedule::Op::Forward, .stage = StageId{w}}});
    if (w > 0) blocked.push_back({WorkerId{w}, 0, w >= 990});
  }
  const std::string grid = blocked_grid(schedule, blocked);
  EXPECT_NE(grid.find("w999 * [999F0]\n"), std::string::npos) << grid;
  EXPECT_NE(grid.find("w54    [54F0]\n"), std::string::npos) << grid;
  EXPECT_EQ(grid.find("w55 "), std::string::npos) << grid;
  EXPECT_TRUE(grid.ends_with("... and 936 more workers\n")) << grid;
}

TEST(BlockedGrid, RefusesActionsThatDoNotExist) {
  const schedule::Schedule schedule =
      schedule::parse_schedule(std::string(kHeader) + "0F0\n1F0\n2F0\n", "s.txt");
  EXPECT_THROW(blocked_grid(schedule, {{WorkerId{0}, 1}}), ConfigError);
  EXPECT_THROW(blocked_grid(schedule, {{WorkerId{3}, 0}}), ConfigError);
  EXPECT_THROW(blocked_grid(schedule, {{WorkerId{-1}, 0}}), ConfigError);
  EXPECT_THROW(blocked_grid(schedule, {}, 20), ConfigError);
}

}  // namespace
}  // namespace penstock::report
