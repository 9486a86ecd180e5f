#include "penstock/schedule/formats/read_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/schedule/formats/chrome_trace.h"
#include "penstock/schedule/testing_timelines.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {
using ::testing::HasSubstr;

std::string message_of(const std::string& text) {
  try {
    parse_trace(text, "t.json");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "no error";
}

constexpr std::string_view kGood =
    R"("cat":"F","ph":"X","ts":1.5,"dur":2,"pid":0,"tid":0,)"
    R"("args":{"stage":0,"micro_batch":3,"mini_batch":0,"version":1,"waiting_us":0})";
std::string trace_of(std::string_view members) {
  return R"({"traceEvents":[{)" + std::string(members) + "}]}";
}
/// The good event with one part replaced.
std::string changed(std::string_view from, std::string_view to) {
  std::string text(kGood);
  text.replace(text.find(from), from.size(), to);
  return trace_of(text);
}

TEST(TraceReader, ReadsWhatTheWriterWrote) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Timeline a = random_timeline(seed, 3, 5, 100);
    Timeline b = random_timeline(seed + 1000, 2, 5, 50);
    b.source = "measured";
    EXPECT_EQ(parse_trace(chrome_trace({&a, &b}), "t.json"), (std::vector<Timeline>{a, b}))
        << "seed " << seed;
  }
}

TEST(TraceReader, ReadsTheLanesOfSums) {
  Timeline timeline = random_timeline(1, 2, 5, 20);
  timeline.sums = {{.worker = WorkerId{1},
                    .events = {{StageId{0}, MiniBatchId{2}, 1, 10, 25},
                               {StageId{3}, MiniBatchId{2}, 0, 25, 26}}},
                   {.server = 0, .events = {{StageId{0}, MiniBatchId{2}, 1, 10, 30}}}};
  const std::string text = chrome_trace({&timeline});
  EXPECT_EQ(parse_trace(text, "t.json"), (std::vector<Timeline>{timeline}));
  EXPECT_THAT(text, HasSubstr("\"name\":\"server 0, sums\""));
  EXPECT_THAT(text, HasSubstr("\"name\":\"0SUM2.1\""));
  EXPECT_THAT(message_of(trace_of(R"("cat":"SUM","ph":"X","ts":1,"dur":2,"pid":0,"tid":3,)"
                                  R"("args":{"stage":0,"mini_batch":0,"bucket":0})")),
              HasSubstr("the key \"server\" is missing"));
}

TEST(TraceReader, ReadsABareArrayAndSkipsUnknownKeysAndEvents) {
  const auto timelines =
      parse_trace(R"([{"ph":"i","name":"other","x":[1,{"args":{"stage":"deep"}}],)"
                  R"("args":{"snapshot":{"stage":"deep"}}},{)" +
                      std::string(kGood) + "}]",
                  "t.json");
  ASSERT_EQ(timelines.size(), 1u);
  EXPECT_EQ(timelines[0].source, "process 0");
  ASSERT_EQ(timelines[0].workers.size(), 1u);
  EXPECT_EQ(timelines[0].workers[0].at(0).start_ns, 1500);
  EXPECT_EQ(timelines[0].workers[0].at(0).end_ns, 3500);
  EXPECT_EQ(timelines[0].workers[0].at(0).action.micro_batch, MicroBatchId{3});
}

TEST(TraceReader, SortsEventsAndLimitsWaiting) {
  const auto timelines = parse_trace(
      R"([{"cat":"F","ph":"X","ts":10,"dur":1,"pid":7,"tid":0,"args":{"stage":0}},)"
      R"({"cat":"B","ph":"X","ts":2,"dur":1,"pid":7,"tid":0,"args":{"stage":0,"waiting_us":50}}])",
      "t.json");
  EXPECT_EQ(timelines.at(0).workers.at(0).at(0).start_ns, 2000);
  EXPECT_EQ(timelines.at(0).workers.at(0).at(0).waiting_ns, 1000);
}

TEST(TraceReader, ErrorsNameTheEventAndTheKey) {
  EXPECT_EQ(message_of(trace_of(kGood)), "no error");
  EXPECT_THAT(message_of(changed("\"F\"", "\"Foo\"")),
              HasSubstr("t.json: event 0: expected the name of an action in \"cat\""));
  EXPECT_THAT(message_of(changed("\"F\"", "7")), HasSubstr("expected text in \"cat\", found 7"));
  EXPECT_THAT(message_of(changed("1.5", "\"x\"")),
              HasSubstr("expected a number in \"ts\", found text"));
  EXPECT_THAT(message_of(changed("1.5", "null")),
              HasSubstr("expected a number in \"ts\", found null"));
  EXPECT_THAT(message_of(changed("1.5", "1e300")), HasSubstr("expected microseconds"));
  EXPECT_THAT(message_of(changed("1.5", "1e999")), HasSubstr("t.json"));
  EXPECT_THAT(message_of(changed("1.5", "NaN")), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of(changed("\"dur\":2", "\"dur\":-2")), HasSubstr("\"dur\""));
  EXPECT_THAT(message_of(changed("\"tid\":0", "\"tid\":1000000000")),
              HasSubstr("expected an integer from 0 to 4095 in \"tid\""));
  EXPECT_THAT(message_of(changed("\"tid\":0", "\"tid\":0.5")), HasSubstr("\"tid\""));
  EXPECT_THAT(message_of(changed("\"stage\":0", "\"stage\":-1")), HasSubstr("\"stage\""));
  EXPECT_THAT(message_of(changed("\"stage\":0,", "")), HasSubstr("the key \"stage\" is missing"));
  EXPECT_THAT(message_of(changed("\"micro_batch\":3", "\"micro_batch\":99999999999999999999")),
              HasSubstr("\"micro_batch\""));
}

TEST(TraceReader, RefusesTextThatIsNotATrace) {
  EXPECT_THAT(message_of("\x89PNG\r\n"), HasSubstr("t.json:1: not valid JSON"));
  EXPECT_THAT(message_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("{}"), HasSubstr("expected a trace"));
  EXPECT_THAT(message_of("3"), HasSubstr("expected a trace"));
  EXPECT_THAT(message_of(R"({"traceEvents":{"a":1}})"),
              HasSubstr("traceEvents: expected an array"));
  EXPECT_THAT(message_of(R"({"traceEvents":5})"), HasSubstr("traceEvents: expected an array"));
  EXPECT_THAT(message_of(trace_of(kGood).substr(0, 100)), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
  EXPECT_TRUE(parse_trace("[]", "t.json").empty());
}

TEST(TraceReader, RefusesMoreProcessesThanItCanShow) {
  std::string text = "[";
  for (int p = 0; p < 5; ++p)
    text += (p > 0 ? ",{" : "{") +
            std::string(kGood).replace(kGood.find("\"pid\":0"), 7, "\"pid\":" + std::to_string(p)) +
            "}";
  EXPECT_THAT(message_of(text + "]"), HasSubstr("at most 4 processes"));
}

}  // namespace
}  // namespace penstock::schedule
