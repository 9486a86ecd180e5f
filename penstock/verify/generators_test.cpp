// Every generated schedule is sound with one credit per channel, eager-1f1b with as many as its
// slack: stages, chunks, slack, replicas, micro-batches, accumulation.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "penstock/verify/testing_schedules.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {
namespace {

std::string first_violation_of(const Schedule& schedule) {
  return first_violation(schedule, std::max<int64_t>(schedule.shape.slack, 1));
}

struct Form {
  Strategy kind;
  int chunks;
  int64_t slack;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> kForms = {
      {Strategy::GPipe, 1, 0},         {Strategy::OneFOneBFlush, 1, 0},
      {Strategy::EagerOneFOneB, 1, 1}, {Strategy::EagerOneFOneB, 1, 3},
      {Strategy::Interleaved, 1, 0},   {Strategy::Interleaved, 2, 0},
      {Strategy::Interleaved, 3, 0},   {Strategy::Interleaved, 5, 0},
      {Strategy::InterleavedZb, 1, 0}, {Strategy::InterleavedZb, 2, 0},
      {Strategy::InterleavedZb, 3, 0}, {Strategy::InterleavedZb, 5, 0},
      {Strategy::ZbH1, 1, 0},          {Strategy::ZbH2, 1, 0},
      {Strategy::ZbV, 2, 0},           {Strategy::DualPipeV, 2, 0},
      {Strategy::VHalf, 2, 0},         {Strategy::VMin, 2, 0},
      {Strategy::Chimera, 1, 0},       {Strategy::DualPipe, 1, 0},
  };
  return kForms;
}

/// `workers` workers per copy of the pipeline.
ScheduleShape copies_of(const Form& form, int workers, int copies, int64_t micro_batches,
                        int64_t accumulate) {
  const int replicas = traits(form.kind).replicas_per_copy() * copies;
  const ScheduleShape shape{
      .replicas = std::vector<int>(static_cast<size_t>(workers * form.chunks), replicas),
      .micro_batches = micro_batches,
      .accumulate = accumulate,
      .slack = form.slack};
  return schedule::with_placement(form.kind, shape, form.chunks);
}

}  // namespace

TEST(GeneratedSchedules, AreSoundOverTheGrid) {
  for (const Form& form : forms()) {
    for (int workers = 1; workers <= 8; ++workers) {
      if (traits(form.kind).replicas_per_copy() == 2 && workers % 2 != 0) continue;
      for (const int copies : {1, 2, 3}) {
        for (const int64_t micro_batches : {0, 1, 2, 3, 5, 8, 9, 16, 17, 24}) {
          for (const int64_t accumulate : {1, 3, 8, 24}) {
            const ScheduleShape shape = copies_of(form, workers, copies, micro_batches, accumulate);
            ASSERT_EQ(first_violation_of(full_schedule(form.kind, shape)), "")
                << describe(form.kind, shape);
            ASSERT_EQ(first_violation_of(schedule::generate(form.kind, shape)), "")
                << describe(form.kind, shape);
          }
        }
      }
    }
  }
}

// Searched orders: of these shapes the fastest that were found held two workers in their sends.
TEST(GeneratedSchedules, OfTooFewMicroBatchesForTheVRunWithOneCredit) {
  for (const auto& [workers, micro_batches] : std::vector<std::pair<int, int64_t>>{
           {10, 16}, {11, 20}, {12, 19}, {12, 22}, {13, 21}, {14, 26}, {15, 24}, {16, 25}}) {
    for (const int copies : {1, 2}) {
      const ScheduleShape shape = copies_of({Strategy::ZbV, 2, 0}, workers, copies,
                                            copies * micro_batches, copies * micro_batches);
      EXPECT_EQ(first_violation_of(full_schedule(Strategy::ZbV, shape)), "")
          << describe(Strategy::ZbV, shape);
    }
  }
}

TEST(GeneratedSchedules, OfRepeatedBlocksAreSoundForAnyWorkersAndMicroBatches) {
  for (const Strategy kind : {Strategy::VHalf, Strategy::VMin}) {
    for (int workers = 2; workers <= 16; ++workers) {
      for (int64_t micro_batches = 1; micro_batches <= 64; ++micro_batches) {
        const ScheduleShape shape =
            copies_of({kind, 2, 0}, workers, 1, micro_batches, micro_batches);
        ASSERT_EQ(first_violation_of(full_schedule(kind, shape)), "") << describe(kind, shape);
      }
    }
  }
}

TEST(GeneratedSchedules, AreSoundOverUnequalReplicas) {
  for (const Form& form : {Form{Strategy::EagerOneFOneB, 1, 1}, Form{Strategy::EagerOneFOneB, 1, 2},
                           Form{Strategy::EagerOneFOneB, 1, 5}, Form{Strategy::ZbH1, 1, 0},
                           Form{Strategy::ZbH2, 1, 0}}) {
    for (const std::vector<int>& replicas : replica_samples()) {
      for (const int64_t micro_batches : {1, 4, 7, 12, 13, 30, 60}) {
        for (const int64_t accumulate : {1, 5, 12, 60}) {
          const ScheduleShape shape{.replicas = replicas,
                                    .micro_batches = micro_batches,
                                    .accumulate = accumulate,
                                    .slack = form.slack};
          ASSERT_EQ(first_violation_of(full_schedule(form.kind, shape)), "")
              << describe(form.kind, shape) << ", slack " << form.slack;
        }
      }
    }
  }
}

RC_GTEST_PROP(GeneratedSchedules, AreSoundForAnyShape, ()) {
  const Form form = *rc::gen::elementOf(forms());
  const int workers = *rc::gen::inRange(1, 13) * traits(form.kind).replicas_per_copy();
  ScheduleShape shape =
      copies_of(form, workers, *rc::gen::inRange(1, 4), *rc::gen::inRange<int64_t>(0, 70),
                *rc::gen::inRange<int64_t>(1, 80));
  shape.global_norm = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) {
    shape.recompute = *rc::gen::container<std::vector<bool>>(
        static_cast<size_t>(shape.num_stages()), rc::gen::arbitrary<bool>());
  }
  if (*rc::gen::arbitrary<bool>()) {
    for (int s = 0; s < shape.num_stages(); ++s)
      shape.offload.push_back(!shape.recomputes(StageId{s}) && *rc::gen::arbitrary<bool>());
  }
  RC_ASSERT(first_violation_of(full_schedule(form.kind, shape)) == "");
}

RC_GTEST_PROP(GeneratedSchedules, AreSoundOverAnyReplicas, ()) {
  const Form form = *rc::gen::element(Form{Strategy::EagerOneFOneB, 1, 0},
                                      Form{Strategy::ZbH1, 1, 0}, Form{Strategy::ZbH2, 1, 0});
  ScheduleShape shape{
      .replicas = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 6))),
      .micro_batches = *rc::gen::inRange<int64_t>(0, 80),
      .accumulate = *rc::gen::inRange<int64_t>(1, 90)};
  if (shape.num_stages() > 8) shape.replicas.resize(8);
  if (form.kind == Strategy::EagerOneFOneB) shape.slack = *rc::gen::inRange(0, 7);
  RC_ASSERT(first_violation_of(full_schedule(form.kind, shape)) == "");
}

// The user numbers the workers: a schedule with permuted worker_of_replica is the same schedule
// with its lists in another order.
RC_GTEST_PROP(GeneratedSchedules, FollowWorkerOfReplica, ()) {
  const Form form = *rc::gen::elementOf(forms());
  const int workers = *rc::gen::inRange(1, 5) * traits(form.kind).replicas_per_copy();
  ScheduleShape shape = copies_of(form, workers, *rc::gen::inRange(1, 4), 9, 4);
  const Schedule plain = schedule::generate(form.kind, shape);
  if (shape.worker_of_replica.empty()) {
    shape.worker_of_replica.resize(static_cast<size_t>(shape.num_workers()));
    std::iota(shape.worker_of_replica.begin(), shape.worker_of_replica.end(), 0);
  }
  std::vector<int> number(static_cast<size_t>(shape.num_workers()));
  std::iota(number.begin(), number.end(), 0);
  for (size_t i = number.size(); i-- > 1;)
    std::swap(number[i], number[*rc::gen::inRange<size_t>(0, i + 1)]);
  for (int& worker : shape.worker_of_replica) worker = number[static_cast<size_t>(worker)];
  const Schedule permuted = schedule::generate(form.kind, shape);
  for (size_t w = 0; w < number.size(); ++w)
    RC_ASSERT(permuted.workers[static_cast<size_t>(number[w])] == plain.workers[w]);
  RC_ASSERT(first_violation_of(full_schedule(form.kind, shape)) == "");
}

}  // namespace penstock::verify::testing
