#include <gtest/gtest.h>

#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/util/files/json.h"

namespace penstock::schedule {
namespace {

Timeline small_timeline() {
  return {"predicted",
          {{{{Op::Forward, StageId{0}, MicroBatchId{0}, MiniBatchId{0}, StageId{0}, false, 0,
              WeightVersion{0}},
             0,
             1500,
             0},
            {{Op::SendForward, StageId{0}, MicroBatchId{0}, MiniBatchId{0}, StageId{1}, false, 0,
              WeightVersion{-1}},
             1500,
             1501,
             1}},
           {}}};
}

TEST(ChromeTrace, HasOneProcessPerTimelineAndOneThreadPerWorker) {
  const Timeline timeline = small_timeline();
  EXPECT_EQ(chrome_trace({&timeline}),
            "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":"
            "\"predicted\"}},\n"
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":"
            "\"worker 0, stage 0\"}},\n"
            "{\"name\":\"0F0@0\",\"cat\":\"F\",\"cname\":\"thread_state_runnable\",\"ph\":\"X\","
            "\"ts\":0.000,\"dur\":1.500,\"pid\":0,\"tid\":0,"
            "\"args\":{\"stage\":0,\"micro_batch\":0,\"mini_batch\":0,\"version\":0,\"waiting_us\":"
            "0.000}},\n"
            "{\"name\":\"0SEND_F0\",\"cat\":\"SEND_F\",\"cname\":\"grey\",\"ph\":\"X\",\"ts\":1."
            "500,\"dur\":0.001,\"pid\":0,\"tid\":0,"
            "\"args\":{\"stage\":0,\"micro_batch\":0,\"mini_batch\":0,\"peer\":1,\"waiting_us\":0."
            "001}},\n"
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":1,\"args\":{\"name\":"
            "\"worker 1\"}}\n"
            "]}\n");
}

TEST(ChromeTrace, NamesMembersOfTeams) {
  Timeline timeline{"predicted", {}};
  for (const int32_t stage : {0, 1, 0, 1, 2})
    timeline.workers.push_back({{{.op = Op::Forward, .stage = StageId{stage}}, 0, 1, 0}});
  const Json events = parse_json(chrome_trace({&timeline}, {2, 1}), "trace").at("traceEvents");
  EXPECT_EQ(events.at(1).at("args").at("name"), "worker 0, stage 0, replica 0, member 0");
  EXPECT_EQ(events.at(7).at("args").at("name"), "worker 3, stage 0, replica 1, member 1");
  EXPECT_EQ(events.at(9).at("args").at("name"), "worker 4, stage 1, replica 0, member 0");
}

TEST(ChromeTrace, NamesTheStagesOfAWorkerAndColoursEveryAction) {
  Timeline timeline{"predicted", {{}}};
  for (const Op op :
       {Op::Forward, Op::Backward, Op::BackwardInput, Op::BackwardWeight, Op::Recompute,
        Op::SendForward, Op::RecvForward, Op::SendBackward, Op::RecvBackward, Op::SyncGradients,
        Op::NormGradients, Op::Step, Op::FreeWeights}) {
    timeline.workers[0].push_back(
        {{.op = op, .stage = StageId{op == Op::BackwardWeight ? 3 : 1}}, 0, 1, 0});
  }
  const Json events = parse_json(chrome_trace({&timeline}), "trace").at("traceEvents");
  EXPECT_EQ(events.at(1).at("args").at("name"), "worker 0, stages 1 3");
  EXPECT_EQ(events.at(5).at("name"), "3W0");
  for (size_t i = 2; i < events.size(); ++i)
    EXPECT_FALSE(events.at(i).at("cname").get<std::string>().empty());
}

TEST(ChromeTrace, IsValidJsonForAnyNamesAndNumbersOfTimelines) {
  Timeline odd = small_timeline();
  odd.source = "a \"quoted\" \xff name\n";
  const Timeline good = small_timeline();
  EXPECT_EQ(parse_json(chrome_trace({&odd, &good}), "trace").at("traceEvents").size(), 10u);
  EXPECT_TRUE(parse_json(chrome_trace({}), "trace").at("traceEvents").empty());
}

}  // namespace
}  // namespace penstock::schedule
