#include <gtest/gtest.h>

#include "penstock/report/report.h"
#include "penstock/util/json.h"

namespace penstock::report {
namespace {

using schedule::Op;

schedule::Timeline small_timeline() {
  return {"predicted",
          {{{{Op::Forward, StageId{0}, MicroBatchId{0}, MiniBatchId{0}, StageId{0}, WeightVersion{0}}, 0, 1500, 0},
            {{Op::SendForward, StageId{0}, MicroBatchId{0}, MiniBatchId{0}, StageId{1}, WeightVersion{-1}}, 1500, 1501, 1}},
           {}}};
}

TEST(ChromeTrace, HasOneProcessPerTimelineAndOneThreadPerWorker) {
  const schedule::Timeline timeline = small_timeline();
  EXPECT_EQ(chrome_trace({&timeline}),
            "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"predicted\"}},\n"
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"worker 0, stage 0\"}},\n"
            "{\"name\":\"0F0@0\",\"cat\":\"F\",\"ph\":\"X\",\"ts\":0.000,\"dur\":1.500,\"pid\":0,\"tid\":0,"
            "\"args\":{\"stage\":0,\"micro_batch\":0,\"mini_batch\":0,\"version\":0,\"waiting_us\":0.000}},\n"
            "{\"name\":\"0SEND_F0\",\"cat\":\"SEND_F\",\"ph\":\"X\",\"ts\":1.500,\"dur\":0.001,\"pid\":0,\"tid\":0,"
            "\"args\":{\"stage\":0,\"micro_batch\":0,\"mini_batch\":0,\"peer\":1,\"waiting_us\":0.001}},\n"
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":1,\"args\":{\"name\":\"worker 1\"}}\n"
            "]}\n");
}

TEST(ChromeTrace, IsValidJsonForAnyNamesAndNumbersOfTimelines) {
  schedule::Timeline odd = small_timeline();
  odd.source = "a \"quoted\" \xff name\n";
  const schedule::Timeline good = small_timeline();
  EXPECT_EQ(parse_json(chrome_trace({&odd, &good}), "trace").at("traceEvents").size(), 10u);
  EXPECT_TRUE(parse_json(chrome_trace({}), "trace").at("traceEvents").empty());
}

}  // namespace
}  // namespace penstock::report
