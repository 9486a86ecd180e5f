#include "penstock/schedule/formats/pytorch_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/placement.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string csv_refusal(const std::string& text) {
  try {
    parse_schedule(text, "s.csv");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_to_write(const Schedule& schedule) {
  try {
    to_pytorch_csv(schedule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// Reads and writes again.
std::string rewritten(const std::string& text) {
  return to_pytorch_csv(parse_pytorch_csv(text, "s.csv").schedule);
}

/// The text without idle cells.
std::string without_bubbles(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ',' && (result.empty() || result.back() == ',' || result.back() == '\n')) continue;
    if (c == '\n' && !result.empty() && result.back() == ',') result.pop_back();
    result += c;
  }
  return result;
}

// Two ranks with stages 0 2 and 1 3.
constexpr const char* kLooped =
    "0F0,0F1,2F0,2F1,,2B0,2B1,,0B0,0B1\n"
    ",1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1,\n";
// Two ranks with stages 0 3 and 1 2, split backward.
constexpr const char* kVShaped =
    "0F0,0F1,,3F0,3I0,3W0,3F1,3I1,3W1,0B0,0B1,\n"
    ",1F0,2F0,1F1,2F1,,2I0,1I0,2I1,1I1,2W0,2W1,1W0,1W1\n";

}  // namespace

TEST(PyTorchCsv, ComputeOnlyGPipeEqualsOurs) {
  Schedule ours =
      generate(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2});
  ours.kind = "custom";
  EXPECT_EQ(parse_schedule("0F0,0F1,,,0B0,0B1\r\n,1F0,1F1,1B0,1B1,\r\n", "s.csv"), ours);
}

TEST(PyTorchCsv, ComputeOnlyOneFOneBEqualsOursWithFlush) {
  Schedule ours = generate(Strategy::OneFOneBFlush,
                           {.replicas = {1, 1, 1, 1}, .micro_batches = 4, .accumulate = 4});
  ours.kind = "custom";
  const char* text =
      "0F0,0F1,0F2,0F3,,,,0B0,,0B1,,0B2,,0B3\n"
      ",1F0,1F1,1F2,,,1B0,1F3,1B1,,1B2,,1B3,\n"
      ",,2F0,2F1,,2B0,2F2,2B1,2F3,2B2,,2B3,,\n"
      ",,,3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,,,\n";
  EXPECT_EQ(parse_schedule(text, "s.csv"), ours);
}

TEST(PyTorchCsv, SendsAndReceivesGetVersionsAndOneStep) {
  Schedule ours =
      lower(generate(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2}),
            chain_links(2));
  ours.kind = "custom";
  const char* text =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
  EXPECT_EQ(parse_schedule(text, "s.csv"), ours);
  EXPECT_EQ(to_pytorch_csv(ours), text);
}

TEST(PyTorchCsv, AReceiveWaitsWhereItsDataIsUsed) {
  std::vector<std::string> notes;
  const std::string text =
      "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0RECV_B1,0B0,0B1\n"
      "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";
  EXPECT_EQ(to_pytorch_csv(parse_schedule(text, "s.csv", &notes)),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("3 receives wait where their data is used")));
  // One that stands where it waits is no change, one that comes too late stays for the verifier.
  const std::string late = "0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_EQ(to_pytorch_csv(parse_schedule(late, "s.csv", &notes)), late);
  EXPECT_THAT(notes, IsEmpty());
}

TEST(PyTorchCsv, AnOverlapOfAForwardAndABackwardIsOneAction) {
  std::vector<std::string> notes;
  const std::string text = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n";
  const Schedule schedule = parse_schedule(text, "s.csv", &notes);
  EXPECT_FALSE(schedule.lowered);
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_EQ(to_pytorch_csv(schedule), text);
  const std::string full =
      "0F0,0SEND_F0,0RECV_B0,(0F1;0B0)OVERLAP_F_B,0SEND_F1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
  EXPECT_EQ(to_pytorch_csv(lower(schedule, chain_links(2))), full);
  EXPECT_EQ(to_pytorch_csv(parse_schedule(full, "s.csv", &notes)), full);
  EXPECT_THAT(notes, IsEmpty());
  // B first is the same: the two run together. What either waits for is waited for before both.
  const std::string early =
      "0F0,0SEND_F0,(0B0;0F1)OVERLAP_F_B,0SEND_F1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";
  std::string posted = early;
  posted.replace(posted.find("0SEND_F0,"), 9, "0RECV_B0,0SEND_F0,");
  EXPECT_EQ(to_pytorch_csv(parse_schedule(posted, "s.csv", &notes)), full);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("2 receives wait")));
}

TEST(PyTorchCsv, AnOverlapOfAnythingElseSendsBehindItsActions) {
  std::vector<std::string> notes;
  const Schedule schedule =
      parse_schedule("0F0,0I0,(0F1;0W0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n", "s.csv", &notes);
  ASSERT_TRUE(schedule.lowered);
  EXPECT_EQ(to_pytorch_csv(schedule),
            "0F0,0SEND_F0,0RECV_B0,0I0,0F1,0W0,0SEND_F1,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 OVERLAP_F_B that are no F with a B or I")));
}

TEST(PyTorchCsv, SeveralStagesOfARankAreOnOneWorker) {
  EXPECT_EQ(parse_schedule(kLooped, "s.csv").shape.worker_of_replica, loop_placement(4, 2));
  EXPECT_EQ(parse_schedule(kVShaped, "s.csv").shape.worker_of_replica, v_placement(4));
  EXPECT_THAT(parse_schedule("2F0,0F0\n1F0\n", "s.csv").shape.worker_of_replica,
              ElementsAre(0, 1, 0));
}

TEST(PyTorchCsv, CellsComeBackAsTheyWere) {
  for (const std::string text : {kLooped, kVShaped, "0F0\n1F0\n", "1F0,1B0\n0F0,0B0\n"})
    EXPECT_EQ(rewritten(text), without_bubbles(text));
}

TEST(PyTorchCsv, AVInMessagesEqualsOursLowered) {
  const Schedule compute = parse_schedule(kVShaped, "s.csv");
  const Schedule lowered = lower(compute, chain_links(4));
  const std::string text = to_pytorch_csv(lowered);
  EXPECT_THAT(text, HasSubstr("1RECV_F0,1F0,2F0,2SEND_F0,1RECV_F1"));
  EXPECT_EQ(parse_schedule(text, "s.csv"), lowered);
}

TEST(PyTorchCsv, RowsAreWorkersInOrderAndReplicasAreFoundByTheirMicroBatches) {
  const Schedule schedule = parse_schedule("1F0,1F1,1B0,1B1\n0F1,0B1\n0F0,0B0\n", "s.csv");
  EXPECT_EQ(schedule.shape.replicas, (std::vector<int>{2, 1}));
  EXPECT_THAT(schedule.shape.worker_of_replica, ElementsAre(2, 1, 0));
  EXPECT_EQ(schedule.shape.micro_batches, 2);
  EXPECT_EQ(schedule.shape.accumulate, 2);
  EXPECT_EQ(to_text(schedule.workers[1][0]), "0F1");
}

TEST(PyTorchCsv, ReduceGradOfAReplicatedStageIsItsSync) {
  std::vector<std::string> notes;
  const Schedule schedule = parse_schedule(
      "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n0F1,0SEND_F1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD1\n",
      "s.csv", &notes);
  const Schedule ours = lower(
      generate(Strategy::OneFOneBFlush, {.replicas = {2, 1}, .micro_batches = 2, .accumulate = 2}),
      chain_links(2));
  EXPECT_EQ(schedule.workers, ours.workers);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("left out 1 REDUCE_GRAD of stages without replicas")));
  EXPECT_THAT(to_pytorch_csv(ours), HasSubstr("0B0,0REDUCE_GRAD\n"));
}

TEST(PyTorchCsv, ReduceGradWithoutMessagesIsLeftOut) {
  std::vector<std::string> notes;
  const Schedule schedule =
      parse_schedule("0F0,0B0,0REDUCE_GRAD\n0F1,0B1\n1F0,1B0\n1F1,1B1\n", "s.csv", &notes);
  EXPECT_FALSE(schedule.lowered);
  EXPECT_EQ(to_text(schedule.workers[0].back()), "0B0");
  EXPECT_THAT(notes,
              ElementsAre(HasSubstr("left out REDUCE_GRAD: there are no sends and receives")));
  // Nothing goes from worker to worker: one stage, or all stages of a replica in one place.
  EXPECT_TRUE(parse_schedule("0F0,0B0,0REDUCE_GRAD\n0F1,0B1\n", "s.csv", &notes).lowered);
  EXPECT_TRUE(parse_schedule("0F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD\n0F1,1F1,1B1,0B1\n",
                             "s.csv", &notes)
                  .lowered);
}

// What PyTorch 2.15.0 makes of kWaitless.
constexpr const char* kWaitless =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
constexpr const char* kWithWaits =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1\n"
    "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n";

TEST(PyTorchCsv, WaitsForSendsAreReadAndWrittenForTheVersionThatHasThem) {
  std::vector<std::string> notes;
  const Schedule schedule = parse_schedule(kWithWaits, "s.csv", &notes);
  EXPECT_EQ(schedule, parse_schedule(kWaitless, "s.csv"));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("left out 4 WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE")));
  EXPECT_EQ(to_pytorch_csv(schedule, pytorch_form("2.15")), kWithWaits);
  EXPECT_EQ(to_pytorch_csv(schedule, pytorch_form("2.15.0")), kWithWaits);
  for (const char* version : {"2.13", "2.14", "2.14.1"})
    EXPECT_EQ(to_pytorch_csv(schedule, pytorch_form(version)), kWaitless) << version;
  for (const char* version : {"2.1", "2.150", "2.16", "3", "latest"})
    EXPECT_THROW(pytorch_form(version), ConfigError) << version;
}

TEST(PyTorchCsv, AWaitStandsBehindTheOverlapOfItsBackward) {
  const Schedule schedule = parse_schedule(
      "0F0,0SEND_F0,0RECV_B0,(0F1;0B0)OVERLAP_F_B,0SEND_F1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
      "s.csv");
  const std::string text = to_pytorch_csv(schedule, PyTorchForm::From215);
  EXPECT_THAT(text, HasSubstr(",(0F1;0B0)OVERLAP_F_B,0WAIT_SEND_F0,0SEND_F1,"));
  EXPECT_EQ(parse_schedule(text, "s.csv"), schedule);
}

TEST(PyTorchCsv, ASumOfGradientsHasItsWait) {
  const Schedule ours = lower(
      generate(Strategy::OneFOneBFlush, {.replicas = {2, 1}, .micro_batches = 2, .accumulate = 2}),
      chain_links(2));
  const std::string text = to_pytorch_csv(ours, PyTorchForm::From215);
  EXPECT_THAT(text, HasSubstr("0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"));
  std::vector<std::string> notes;
  EXPECT_EQ(parse_schedule(text, "s.csv", &notes).workers, ours.workers);
}

TEST(PyTorchCsv, AWaitWithoutItsSendIsRefused) {
  EXPECT_THAT(csv_refusal("0F0,0WAIT_SEND_F0,0SEND_F0\n1RECV_F0,1F0\n"),
              HasSubstr("s.csv:1: action 2 '0WAIT_SEND_F0': expected the SEND_F that it waits for "
                        "before it in its row"));
  EXPECT_THAT(csv_refusal("0F0,0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F0\n1RECV_F0,1F0\n"),
              HasSubstr("action 4"));
  EXPECT_THAT(csv_refusal("0F0,0B0,0WAIT_REDUCE_GRAD\n"), HasSubstr("expected the REDUCE_GRAD"));
  EXPECT_THAT(csv_refusal("0F0,0WAIT_RECV_F0\n"), HasSubstr("expected WAIT_SEND_F, WAIT_SEND_B"));
  EXPECT_THAT(csv_refusal("0F0,0WAIT_\n"), HasSubstr("s.csv:1: action 2"));
  EXPECT_THAT(csv_refusal("0F0,0WAIT_REDUCE\n"), HasSubstr("expected WAIT_REDUCE_GRAD"));
  EXPECT_THAT(csv_refusal("# penstock schedule 1\n# replicas: 1\n"
                          "# micro-batches: 1  accumulate: 1  weights: flush\n0F0,0WAIT_SEND_F0\n"),
              HasSubstr("WAIT_SEND_F belongs to PyTorch's CSV"));
  std::vector<std::string> notes;
  parse_schedule("0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F0\n1RECV_F0,1F0,1RECV_F1,1F1\n", "s.csv",
                 &notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("left out 1"),
                                 HasSubstr("PyTorch refuses the file: 1 sends have no WAIT_SEND")));
}

TEST(PyTorchCsv, SaysWhatItLeavesOutOrReadsAsSomethingElse) {
  std::vector<std::string> notes;
  const Schedule schedule = parse_schedule(
      "\xef\xbb\xbf"
      "0UNSHARD,1UNSHARD,0F0,\"1F0\",1I0,(0F1;1W0)OVERLAP_F_B,1F1,1B1,0B0,0B1,0RESHARD,0REDUCE_"
      "GRAD\n",
      "s.csv", &notes);
  EXPECT_EQ(to_pytorch_csv(schedule), "0F0,1F0,1I0,0F1,1W0,1F1,1B1,0B0,0B1\n");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("3 UNSHARD and RESHARD"), HasSubstr("1 OVERLAP_F_B"),
                                 HasSubstr("1 REDUCE_GRAD")));
  parse_schedule("0F0\n,,\n1F0\n\n", "s.csv", &notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("line 2 holds no action")));
  parse_schedule("0F0,0B0,0W0\n", "s.csv", &notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("W but no I")));
  parse_schedule(kLooped, "s.csv", &notes);
  EXPECT_THAT(notes, IsEmpty());
}

TEST(PyTorchCsv, RefusesAmbiguousReplicas) {
  EXPECT_THAT(csv_refusal("0F0,1F0\n1F0\n"),
              HasSubstr("s.csv:2: stage 1 is in 2 rows; replicas take turns, but this row has the "
                        "turn of line 1"));
  EXPECT_THAT(
      csv_refusal("0F0,1F0\n1F1,1F2\n"),
      HasSubstr("s.csv:2: stage 1 is in 2 rows; replicas take turns, so that a row's micro-batches "
                "of it should differ by multiples of 2, found 1"));
}

TEST(PyTorchCsv, RefusesRowsThatFormNoSchedule) {
  EXPECT_THAT(csv_refusal(""), HasSubstr("found no action"));
  EXPECT_THAT(csv_refusal(",,,\n\n"), HasSubstr("found no action"));
  EXPECT_THAT(csv_refusal("0UNSHARD,0REDUCE_GRAD\n"), HasSubstr("found no action"));
  EXPECT_THAT(csv_refusal("0F0\n2F0\n"), HasSubstr("s.csv:2: stage 1 has no row"));
  EXPECT_THAT(csv_refusal("2000000000F0\n"), HasSubstr("stage 0 has no row"));
  EXPECT_THAT(csv_refusal("0F9223372036854775807\n"), HasSubstr("beyond the supported"));
  EXPECT_THAT(csv_refusal("0F0\n1F0,1F40000000\n"),
              HasSubstr("s.csv:2: 40000001 micro-batches over 2 stages are more than"));
  EXPECT_THAT(csv_refusal("0F0,0STEP0\n"),
              HasSubstr("s.csv:1: action 2 '0STEP0': needs the header"));
  EXPECT_THAT(csv_refusal("0F0,0R0\n"), HasSubstr("needs the header"));
  EXPECT_THAT(csv_refusal("0F0@1\n"), HasSubstr("need the header"));
  EXPECT_THAT(csv_refusal("0F0,0SEND_F0>2\n"), HasSubstr("needs the header"));
  EXPECT_THAT(csv_refusal("0F0,0BW0\n"), HasSubstr("early version of PyTorch"));
  EXPECT_THAT(csv_refusal("0F0,0REDUCE_GRADx\n"), HasSubstr("expected nothing or a number"));
  EXPECT_THAT(csv_refusal("99999999999REDUCE_GRAD\n"), HasSubstr("the stage is too large"));
  EXPECT_THAT(csv_refusal("(0F0;1B1\n"), HasSubstr("expected actions in parentheses"));
  EXPECT_THAT(csv_refusal("(0F0;1B1)OVERLAP\n"), HasSubstr("expected actions in parentheses"));
  EXPECT_THAT(csv_refusal("()OVERLAP_F_B\n"), HasSubstr("expected actions in the parentheses"));
  EXPECT_THAT(csv_refusal("(0F0;;1B1)OVERLAP_F_B\n"), HasSubstr("between the semicolons"));
  EXPECT_THAT(csv_refusal(std::string("\0\xff\xfe,", 4)),
              HasSubstr("expected a stage number first"));
}

TEST(PyTorchCsv, RefusesToWriteWhatWouldMeanSomethingElse) {
  const ScheduleShape shape{.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2};
  ScheduleShape other = shape;
  other.policy = WeightPolicy::Stash;
  EXPECT_THAT(refusal_to_write(generate(Strategy::OneFOneB, other)),
              HasSubstr("expected weight policy flush, found stash"));
  other = shape;
  other.accumulate = 1;
  EXPECT_THAT(refusal_to_write(generate(Strategy::GPipe, other)),
              HasSubstr("one optimiser step, the schedule has 2"));
  other = shape;
  other.recompute = {false, true};
  EXPECT_THAT(refusal_to_write(generate(Strategy::GPipe, other)), HasSubstr("stage 1 recomputes"));
  other = shape;
  other.replicas = {1, 3};
  EXPECT_THAT(refusal_to_write(generate(Strategy::GPipe, other)),
              HasSubstr("stage 1 has 3 replicas, the schedule 2 micro-batches"));
  other = shape;
  other.replicas = {1, 1, 1};
  EXPECT_THAT(
      refusal_to_write(lower(generate(Strategy::GPipe, other),
                             {{StageId{0}, StageId{1}}, {StageId{0}, StageId{2}}})),
      HasSubstr(
          "worker 0, 0SEND_F0>2: PyTorch's CSV has messages between neighbouring stages only"));
  Schedule idle = generate(Strategy::GPipe, shape);
  idle.workers[1].clear();
  EXPECT_THAT(refusal_to_write(idle), HasSubstr("worker 1 has no action"));
  const Schedule untrained = parse_schedule(
      "# penstock schedule 1\n# replicas: 2\n"
      "# micro-batches: 2  accumulate: 2  weights: flush\n# lowered: yes\n"
      "0F0@0,0SYNC0\n0F1@0,0SYNC0\n",
      "sums.txt");
  EXPECT_THAT(refusal_to_write(untrained),
              HasSubstr("expected gradients of weights where they are summed (SYNC)"));
}

RC_GTEST_PROP(PyTorchCsv, AnyPlacementAndOrderComesBack, ()) {
  ScheduleShape shape{.replicas = {}, .micro_batches = *rc::gen::inRange(2, 7)};
  shape.accumulate = shape.micro_batches;
  const int num_stages = *rc::gen::inRange(1, 9);
  for (int s = 0; s < num_stages; ++s) shape.replicas.push_back(*rc::gen::inRange(1, 3));
  // Workers in any order; a worker takes another stage only if it holds no replica of that stage.
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  const int num_workers = std::max(2, *rc::gen::inRange(1, num_stages + 1));
  for (const int count : shape.replicas) {
    std::vector<int> workers(static_cast<size_t>(num_workers));
    std::iota(workers.begin(), workers.end(), 0);
    std::shuffle(workers.begin(), workers.end(), random);
    shape.worker_of_replica.insert(shape.worker_of_replica.end(), workers.begin(),
                                   workers.begin() + count);
  }
  std::vector<int> used = shape.worker_of_replica;
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (int& worker : shape.worker_of_replica)
    worker = static_cast<int>(std::lower_bound(used.begin(), used.end(), worker) - used.begin());
  if (shape.worker_of_replica.size() == used.size() &&
      std::is_sorted(shape.worker_of_replica.begin(), shape.worker_of_replica.end()))
    shape.worker_of_replica.clear();

  Schedule schedule{.kind = "custom", .shape = shape, .workers = {}};
  schedule.workers.resize(used.size());
  const WorkerTable table(shape);
  for (int s = 0; s < num_stages; ++s) {
    for (int64_t b = 0; b < shape.micro_batches; ++b) {
      auto& list = schedule.workers[table.worker_of(StageId{s}, MicroBatchId{b}).index()];
      const auto add = [&](Op op) {
        list.push_back({.op = op,
                        .stage = StageId{s},
                        .micro_batch = MicroBatchId{b},
                        .mini_batch = {},
                        .peer = StageId{s}});
      };
      add(Op::Forward);
      if (random() % 2 == 0) {
        add(Op::Backward);
      } else {
        add(Op::BackwardInput);
        add(Op::BackwardWeight);
      }
    }
  }
  for (auto& list : schedule.workers) std::shuffle(list.begin(), list.end(), random);
  const ParsedCsv parsed = parse_pytorch_csv(to_pytorch_csv(schedule), "s.csv");
  RC_ASSERT(parsed.schedule == schedule);
  // Lowered, even if the order is not sound: messages come back too.
  const Schedule lowered = lower(schedule, chain_links(num_stages));
  RC_ASSERT(to_pytorch_csv(parse_schedule(to_pytorch_csv(lowered), "s.csv")) ==
            to_pytorch_csv(lowered));
}

TEST(PyTorchCsv, SaysWhatPyTorchDoesNotRun) {
  const auto why = [](Strategy kind, std::vector<int> replicas) {
    const Schedule schedule =
        generate(kind, {.replicas = std::move(replicas), .micro_batches = 8, .accumulate = 8});
    return why_pytorch_refuses(schedule).value_or("it runs");
  };
  EXPECT_EQ(why(Strategy::GPipe, {1, 1}), "it runs");
  EXPECT_EQ(why(Strategy::ZbH1, {1, 1}), "it runs");
  EXPECT_EQ(why(Strategy::ForwardOnly, {1, 1}), "it has no backward pass");
  EXPECT_EQ(why(Strategy::GPipe, {1, 2}),
            "stage 1 is on 2 workers; there each stage is on one rank");
}

}  // namespace penstock::schedule
