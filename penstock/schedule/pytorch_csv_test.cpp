#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/text_format.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  try {
    parse_schedule(text, "s.csv");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(PyTorchCsv, ComputeOnlyGPipeEqualsOurs) {
  Schedule ours = generate(Kind::GPipe, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2});
  ours.kind = "custom";
  EXPECT_EQ(parse_schedule("0F0,0F1,,,0B0,0B1\r\n,1F0,1F1,1B0,1B1,\r\n", "s.csv"), ours);
}

TEST(PyTorchCsv, ComputeOnlyOneFOneBEqualsOursWithFlush) {
  Schedule ours = generate(Kind::OneFOneBFlush, {.replicas = {1, 1, 1, 1}, .micro_batches = 4, .accumulate = 4});
  ours.kind = "custom";
  const char* text =
      "0F0,0F1,0F2,0F3,,,,0B0,,0B1,,0B2,,0B3\n"
      ",1F0,1F1,1F2,,,1B0,1F3,1B1,,1B2,,1B3,\n"
      ",,2F0,2F1,,2B0,2F2,2B1,2F3,2B2,,2B3,,\n"
      ",,,3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,,,\n";
  EXPECT_EQ(parse_schedule(text, "s.csv"), ours);
}

TEST(PyTorchCsv, SendsAndReceivesGetVersionsAndOneStep) {
  Schedule ours = lower(generate(Kind::GPipe, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2}), chain_links(2));
  ours.kind = "custom";
  const char* text =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
  EXPECT_EQ(parse_schedule(text, "s.csv"), ours);
}

TEST(PyTorchCsv, RowsAreSortedByStageAndEqualStagesAreReplicas) {
  const Schedule schedule = parse_schedule("1F0,1F1,1B0,1B1\n0F0,0B0\n\n0F1,0B1\n", "s.csv");
  EXPECT_EQ(schedule.shape.replicas, (std::vector<int>{2, 1}));
  EXPECT_EQ(schedule.shape.micro_batches, 2);
  EXPECT_EQ(schedule.shape.accumulate, 2);
  EXPECT_EQ(to_text(schedule.workers[1][0]), "0F1");
}

TEST(PyTorchCsv, SaysWhatIsNotSupportedYet) {
  for (const std::string action : {"0I0", "0W1", "0UNSHARD", "0RESHARD", "0REDUCE_GRAD"}) {
    const std::string word = action.substr(1, action.find_last_not_of("0123456789"));
    EXPECT_THAT(refusal_of("0F0\n1F0," + action + "\n"),
                HasSubstr("s.csv:2: action 2 '" + action + "': " + word + " is not supported yet"));
  }
  EXPECT_THAT(refusal_of("(0F0;1B1)OVERLAP_F_B\n"), HasSubstr("OVERLAP_F_B is not supported yet"));
  EXPECT_THAT(refusal_of("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"), HasSubstr("s.csv:1: the row holds actions of stages 0 and 3"));
}

TEST(PyTorchCsv, RefusesWhatMakesNoSchedule) {
  EXPECT_THAT(refusal_of(""), HasSubstr("found no action"));
  EXPECT_THAT(refusal_of(",,,\n\n"), HasSubstr("found no action"));
  EXPECT_THAT(refusal_of("0F0\n2F0\n"), HasSubstr("s.csv:2: stage 1 has no row"));
  EXPECT_THAT(refusal_of("2000000000F0\n"), HasSubstr("stage 0 has no row"));
  EXPECT_THAT(refusal_of("0F9223372036854775807\n"), HasSubstr("beyond the supported"));
  EXPECT_THAT(refusal_of("0F0,0STEP0\n"), HasSubstr("needs the header"));
  EXPECT_THAT(refusal_of("0F0@1\n"), HasSubstr("need the header"));
  EXPECT_THAT(refusal_of(std::string("\0\xff\xfe,", 4)), HasSubstr("expected a stage number first"));
}

}  // namespace penstock::schedule
