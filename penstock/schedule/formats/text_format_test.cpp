#include "penstock/schedule/formats/text_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/placement.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kHeader =
    "# penstock schedule 1\n# kind: 1f1b\n# replicas: 1 1\n# micro-batches: 2  accumulate: 1  "
    "weights: stash\n# lowered: no\n";

std::string text_refusal(const std::string& text) {
  try {
    parse_schedule(text, "s.txt");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(ToText, WritesAHeaderAndALinePerWorker) {
  EXPECT_EQ(to_text(generate(Strategy::OneFOneB, {.replicas = {1, 1},
                                                  .micro_batches = 2,
                                                  .accumulate = 1,
                                                  .policy = WeightPolicy::Stash})),
            std::string(kHeader) + "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(ToText, NamesTheOtherStageOfAMessageBetweenDistantStages) {
  Action action{.op = Op::SendForward,
                .stage = StageId{2},
                .micro_batch = MicroBatchId{3},
                .mini_batch = {},
                .peer = StageId{3}};
  EXPECT_EQ(to_text(action), "2SEND_F3");
  action.peer = StageId{5};
  EXPECT_EQ(to_text(action), "2SEND_F3>5");
  action.op = Op::RecvForward;
  action.peer = StageId{0};
  EXPECT_EQ(to_text(action), "2RECV_F3<0");
  action.op = Op::RecvBackward;
  action.peer = StageId{3};
  EXPECT_EQ(to_text(action), "2RECV_B3");
}

TEST(ParseSchedule, ReadsEveryAction) {
  const std::string text =
      "# penstock schedule 1\n# replicas: 1 1\n# micro-batches: 2  accumulate: 1  weights: stash\n"
      "0F1@0,0SEND_F0>3, 0RECV_F1<0,,\t0B0@12 "
      ",0SEND_B1>0,0RECV_B1,0SYNC1,0STEP1@1,0FREE0@0,0I1@0,0W1@0,0R1@0,0NORM1\r\n";
  const Schedule schedule = parse_schedule(text, "s.txt");
  EXPECT_TRUE(schedule.lowered);
  ASSERT_EQ(schedule.workers.size(), 1U);
  std::string actions;
  for (const Action& action : schedule.workers[0]) actions += to_text(action) + " ";
  EXPECT_EQ(actions,
            "0F1@0 0SEND_F0>3 0RECV_F1<0 0B0@12 0SEND_B1>0 0RECV_B1 0SYNC1 0STEP1@1 0FREE0@0 0I1@0 "
            "0W1@0 0R1@0 0NORM1 ");
  EXPECT_EQ(schedule.workers[0][0].mini_batch, MiniBatchId{1});
}

TEST(ToText, WritesTheRareKeysWhereTheyDifferFromTheirDefaults) {
  ScheduleShape shape{.replicas = {1, 1, 1, 1},
                      .micro_batches = 2,
                      .accumulate = 2,
                      .worker_of_replica = v_placement(4)};
  shape.slack = 3;
  shape.recompute = {false, true, false, true};
  shape.offload = {true, false, true, false};
  shape.global_norm = true;
  const Schedule schedule{.kind = "custom", .shape = shape, .workers = {{}, {}}};
  const std::string text =
      "# penstock schedule 1\n# kind: custom\n# replicas: 1 1 1 1\n# hosts: 0 1 1 0\n# "
      "micro-batches: 2  accumulate: 2  weights: flush\n"
      "# slack: 3\n# recompute: 1 3\n# offload: 0 2\n# norm: yes\n# lowered: no\n\n\n";
  EXPECT_EQ(to_text(schedule), text);
  EXPECT_EQ(parse_schedule(text, "s.txt"), schedule);
}

TEST(ParseSchedule, RecomputationMeansLowered) {
  const std::string header =
      "# penstock schedule 1\n# replicas: 1\n# micro-batches: 1 accumulate: 1 weights: flush\n";
  EXPECT_FALSE(parse_schedule(header + "0F0,0I0,0W0\n", "s.txt").lowered);
  EXPECT_TRUE(parse_schedule(header + "0F0,0R0,0B0\n", "s.txt").lowered);
}

TEST(ParseSchedule, SkipsCommentsAndKeepsEmptyWorkers) {
  const Schedule schedule = parse_schedule(
      "# penstock schedule 1\n# made for: a talk\n# replicas: 2 1\n#\n# micro-batches: 1 "
      "accumulate: 1 weights: flush\n0F0,0B0\n# nothing "
      "here\n\n1F0,1B0\n",
      "s.txt");
  EXPECT_EQ(schedule.kind, "custom");
  EXPECT_FALSE(schedule.lowered);
  ASSERT_EQ(schedule.workers.size(), 3U);
  EXPECT_TRUE(schedule.workers[1].empty());
}

TEST(ParseSchedule, DropsBlankLinesAfterTheLastWorker) {
  EXPECT_EQ(parse_schedule(std::string(kHeader) + "0F0\n1F0\n\n\n", "s.txt").workers.size(), 2U);
}

TEST(ParseSchedule, NamesTheLineTheActionAndWhatWasExpected) {
  EXPECT_THAT(
      text_refusal(std::string(kHeader) + "0F0\n1F0,1Q0\n"),
      ::testing::StartsWith(
          "s.txt:7: action 2 '1Q0': unknown operation 'Q', expected F, B, I, W, R, SEND_F"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "F0\n"),
              HasSubstr("action 1 'F0': expected a stage number first"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0F\n"),
              HasSubstr("expected a micro-batch number"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0STEP\n"),
              HasSubstr("expected a mini-batch number"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0F0@\n"),
              HasSubstr("expected a weight version after '@'"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0F0@1x\n"),
              HasSubstr("expected the end of the action, found 'x'"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0SYNC0@1\n"),
              HasSubstr("only F, B, I, W, R, STEP and FREE carry a weight version"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0SEND_F0<2\n"),
              HasSubstr("expected '>' before the other stage, found '<'"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0RECV_F0\n"),
              HasSubstr("stage 0 has no earlier stage to talk to"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "99999999999F0\n"),
              HasSubstr("stage 99999999999 is too large"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + "0F99999999999999999999\n"),
              HasSubstr("the number '99999999999999999999' is too large"));
  EXPECT_THAT(text_refusal(std::string(kHeader) + std::string(1000, '\x01')),
              HasSubstr("'????????????????????????????????????????...'"));
}

TEST(ParseSchedule, NamesWhatIsWrongInTheHeader) {
  const std::string magic = "# penstock schedule 1\n";
  EXPECT_THAT(text_refusal("# penstock schedule 2\n0F0\n"),
              HasSubstr("s.txt:1: expected version 1 of the schedule format, found '2'"));
  EXPECT_THAT(text_refusal(magic + "0F0\n"), HasSubstr("the header has no 'replicas:'"));
  EXPECT_THAT(text_refusal(magic + "# replicas: 1\n# micro-batches: 1 accumulate: 1\n0F0\n"),
              HasSubstr("the header has no 'weights:'"));
  EXPECT_THAT(text_refusal(magic + "# replicas: 1\n# replicas: 1\n"),
              HasSubstr("s.txt:3: replicas is given twice"));
  EXPECT_THAT(
      text_refusal(magic + "# replicas: x\n# micro-batches: 1 accumulate: 1 weights: flush\n"),
      HasSubstr("s.txt:2: replicas: expected a whole number of at least 0, found 'x'"));
  EXPECT_THAT(
      text_refusal(magic + "# replicas: 1 0\n# micro-batches: 1 accumulate: 1 weights: flush\n"),
      HasSubstr("stage 1 has 0 replicas"));
  EXPECT_THAT(
      text_refusal(magic + "# replicas: 1\n# micro-batches: 1 accumulate: 0 weights: flush\n"),
      HasSubstr("accumulate"));
  EXPECT_THAT(
      text_refusal(
          magic +
          "# replicas: 1\n# micro-batches: 9000000000000000000 accumulate: 1 weights: flush\n"),
      HasSubstr("more than"));
  EXPECT_THAT(
      text_refusal(magic + "# replicas: 1\n# micro-batches: 1 acumulate: 1 weights: flush\n"),
      HasSubstr("unknown key 'acumulate'"));
  EXPECT_THAT(
      text_refusal(magic + "# replicas: 1 1\n# worker_of_replica: 0 0\n"),
      HasSubstr("s.txt:3: unknown key 'worker_of_replica', expected kind, replicas, hosts"));
  EXPECT_THAT(
      text_refusal(magic + "# replicas: 1\n# micro-batches: 1 accumulate: 1 weights: none\n"),
      HasSubstr("unknown weight policy 'none'"));
  EXPECT_THAT(
      text_refusal(magic +
                   "# kind: A\n# replicas: 1\n# micro-batches: 1 accumulate: 1 weights: flush\n"),
      HasSubstr("kind: expected lower-case"));
  EXPECT_THAT(
      text_refusal(
          magic +
          "# lowered: maybe\n# replicas: 1\n# micro-batches: 1 accumulate: 1 weights: flush\n"),
      HasSubstr("expected yes or no"));
}

TEST(ParseSchedule, TakesCommentsBetweenKeysAndBelowThem) {
  const std::string keys = "# replicas: 1\n# micro-batches: 1 accumulate: 1 weights: flush\n";
  const Schedule plain = parse_schedule("# penstock schedule 1\n" + keys + "0F0,0B0\n", "s.txt");
  EXPECT_EQ(
      parse_schedule("# penstock schedule 1\n# by hand, see: notes.txt\n# Idea: one worker\n#\n" +
                         keys + "0F0,0B0\n# later: two\n",
                     "s.txt"),
      plain);
}

TEST(ParseSchedule, NamesWhatIsWrongInTheRareKeys) {
  const std::string header =
      "# penstock schedule 1\n# replicas: 1 1\n# micro-batches: 1 accumulate: 1 weights: flush\n";
  EXPECT_THAT(text_refusal(header + "# hosts: 0\n"),
              HasSubstr("s.txt:4: hosts names 1 workers, the stages have 2 replicas"));
  EXPECT_THAT(text_refusal(header + "# hosts:\n"),
              HasSubstr("s.txt:4: hosts: expected the worker of each replica"));
  EXPECT_THAT(text_refusal(header + "# hosts: 0 2\n"), HasSubstr("s.txt:4: hosts"));
  EXPECT_THAT(text_refusal(header + "# hosts: 0 10000001\n"),
              HasSubstr("s.txt:4: hosts: at most 10000000 workers are supported"));
  EXPECT_THAT(text_refusal(header + "# hosts: 0 -1\n"),
              HasSubstr("s.txt:4: hosts: expected a whole number of at least 0, found '-1'"));
  EXPECT_THAT(text_refusal("# penstock schedule 1\n# replicas: 1 1 hosts: 0 0\n# micro-batches: 1 "
                           "accumulate: 1 weights: stash\n"),
              HasSubstr("s.txt:2: worker 0 holds stages 0 and 1"));
  EXPECT_THAT(text_refusal(header + "# recompute: 2\n"),
              HasSubstr("s.txt:4: recompute: there is no stage 2, only 2"));
  EXPECT_THAT(text_refusal(header + "# recompute: 1 1\n"),
              HasSubstr("s.txt:4: recompute: stage 1 is given twice"));
  EXPECT_THAT(text_refusal(header + "# offload: 7\n"),
              HasSubstr("s.txt:4: offload: there is no stage 7, only 2"));
  EXPECT_THAT(text_refusal(header + "# slack: 9223372036854775807\n"),
              HasSubstr("slack must be between 0 and"));
  EXPECT_THAT(text_refusal(header + "# norm: maybe\n"),
              HasSubstr("s.txt:4: norm: expected yes or no, found 'maybe'"));
  EXPECT_THAT(text_refusal(header + "0F0,(0F0;1B0)OVERLAP\n"),
              HasSubstr("s.txt:4: action 2 '(0F0;1B0)OVERLAP': expected actions in parentheses and "
                        "OVERLAP_F_B behind them"));
  EXPECT_THAT(text_refusal(header + "(0F0;)OVERLAP_F_B,(;0F0)OVERLAP_F_B\n"),
              HasSubstr("action 2 '(;0F0)OVERLAP_F_B': expected an action between the semicolons"));
  EXPECT_THAT(text_refusal(header + "((0F0;1B0)OVERLAP_F_B;1B1)OVERLAP_F_B\n"),
              HasSubstr("expected actions in parentheses"));
  EXPECT_THAT(text_refusal(header + "0UNSHARD\n"), HasSubstr("UNSHARD belongs to PyTorch's CSV"));
}

TEST(TextFormat, ActionsThatRunTogetherStandInParentheses) {
  const std::string text =
      "# penstock schedule 1\n# kind: custom\n# replicas: 1\n# micro-batches: 3  accumulate: 3  "
      "weights: flush\n# lowered: yes\n"
      "0F0@0,(0F1@0;0B0@0)OVERLAP_F_B,(0F2@0;0B1@0)OVERLAP_F_B,0B2@0,0FREE0@0,0STEP0@0\n";
  const Schedule schedule = parse_schedule(text, "s.txt");
  std::vector<bool> together;
  for (const Action& action : schedule.workers[0]) together.push_back(action.with_next);
  EXPECT_THAT(together, ElementsAre(false, true, false, true, false, false, false, false));
  EXPECT_EQ(to_text(schedule), text);
  EXPECT_EQ(to_text(schedule.workers[0][1]), "0F1@0");
}

namespace {

Action random_action(const ScheduleShape& shape, Op op) {
  Action action{.op = op, .stage = StageId{*rc::gen::inRange(0, shape.num_stages())}};
  action.peer = action.stage;
  if (is_compute(op) || is_message(op)) {
    action.micro_batch = MicroBatchId{*rc::gen::inRange<int64_t>(0, shape.micro_batches)};
    action.mini_batch = shape.mini_batch_of(action.micro_batch);
  } else {
    action.mini_batch = MiniBatchId{*rc::gen::inRange<int64_t>(0, 1000)};
  }
  if (is_message(op)) {
    action.peer = StageId{*rc::gen::inRange(0, 100)};
  } else if (op != Op::SyncGradients && op != Op::NormGradients) {
    action.version = WeightVersion{*rc::gen::inRange<int64_t>(-1, 5)};
  }
  return action;
}

}  // namespace

RC_GTEST_PROP(TextForm, AnyScheduleComesBack, ()) {
  constexpr std::array kOps = {
      Op::Forward,       Op::Backward,    Op::BackwardInput, Op::BackwardWeight, Op::Recompute,
      Op::SendForward,   Op::RecvForward, Op::SendBackward,  Op::RecvBackward,   Op::SyncGradients,
      Op::NormGradients, Op::Step,        Op::FreeWeights};
  ScheduleShape shape{.replicas = {},
                      .micro_batches = *rc::gen::inRange(1, 50),
                      .accumulate = *rc::gen::inRange(1, 60)};
  const int workers = *rc::gen::inRange(1, 5);
  const int chunks = *rc::gen::inRange(1, 4);
  const int copies = *rc::gen::inRange(1, 3);
  shape.replicas.assign(static_cast<size_t>(workers * chunks), copies);
  shape.worker_of_replica = loop_placement(workers * chunks, workers, copies);
  shape.slack = *rc::gen::inRange(0, 3);
  shape.global_norm = *rc::gen::arbitrary<bool>();
  const int recomputing = *rc::gen::inRange(-1, workers * chunks);
  if (recomputing >= 0) {
    shape.recompute.resize(shape.replicas.size());
    shape.recompute[static_cast<size_t>(recomputing)] = true;
  }
  Schedule schedule{
      .kind = "interleaved", .shape = shape, .lowered = *rc::gen::arbitrary<bool>(), .workers = {}};
  schedule.workers.resize(static_cast<size_t>(shape.num_workers()));
  for (auto& list : schedule.workers) {
    for (int i = *rc::gen::inRange(0, 10); i > 0; --i)
      list.push_back(random_action(shape, kOps[*rc::gen::inRange<size_t>(0, kOps.size())]));
  }
  RC_ASSERT(parse_schedule(to_text(schedule), "s.txt") == schedule);
}

}  // namespace penstock::schedule
