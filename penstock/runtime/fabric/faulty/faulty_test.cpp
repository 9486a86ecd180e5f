// Pipelines on fabrics that misbehave: the same bits where nothing is lost, an error in time
// otherwise.
#include "penstock/runtime/fabric/faulty/testing_faulty_world.h"

#include <gmock/gmock.h>

#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/runtime/test_support.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Case> fault_cases() {
  return {
      {.kind = Strategy::OneFOneB,
       .replicas = {2, 1, 1},
       .policy = WeightPolicy::Stash,
       .parts = 2,
       .samples = 12 * 8},
      {.kind = Strategy::GPipe, .replicas = {1, 1, 1}, .parts = 4, .samples = 12 * 6},
      {.kind = Strategy::ZbV,
       .replicas = {1, 1, 1, 1},
       .parts = 4,
       .samples = 12 * 6,
       .norm = true},
      {.kind = Strategy::Interleaved, .replicas = {2, 2, 2, 2}, .parts = 4, .samples = 12 * 6},
      {.kind = Strategy::Chimera, .replicas = {2, 2}, .parts = 4, .samples = 12 * 6},
  };
}

int workers_of(const Case& setup) { return shape_of(setup, 1).num_workers(); }

TEST(FaultyWorldTest, DelaysAndOvertakingChangeNoBit) {
  const model::Model model = skip_model(0.2);
  for (const Case& setup : fault_cases()) {
    const Trained expected = train(model, setup);
    for (const uint64_t seed : {1, 2, 3}) {
      const auto world = make_faulty_world(make_local_world(workers_of(setup)),
                                           {.seed = seed,
                                            .delay_share = 0.2,
                                            .max_delay = std::chrono::microseconds(800),
                                            .reorder_share = 0.5});
      expect_same_bits(train(model, setup, world.get()), expected);
    }
  }
}

std::string failure_by(const Case& setup, const Faults& faults,
                       std::chrono::milliseconds deadline) {
  const auto world = make_faulty_world(make_local_world(workers_of(setup)), faults);
  try {
    train(skip_model(), setup, world.get(), deadline);
  } catch (const TimeoutError& error) {
    return std::string("timeout: ") + error.what();
  } catch (const RuntimeError& error) {
    return std::string("runtime: ") + error.what();
  }
  return "none";
}

TEST(FaultyWorldTest, ALostMessageIsATimeoutThatNamesIt) {
  for (const Case& setup : fault_cases()) {
    const std::string message =
        failure_by(setup, {.seed = 5, .drop_share = 0.2}, std::chrono::milliseconds(300));
    EXPECT_THAT(message, AllOf(HasSubstr("timeout: "), HasSubstr("waits"), HasSubstr("RECV_")));
  }
}

TEST(FaultyWorldTest, AKilledWorkerEndsTheRunAndIsNamed) {
  for (const Case& setup : fault_cases()) {
    for (const int64_t call : {0, 3, 9}) {
      const Faults faults{.kill = Faults::Kill{.worker = WorkerId{1}, .call = call}};
      EXPECT_THAT(failure_by(setup, faults, std::chrono::seconds(20)),
                  AllOf(HasSubstr("runtime: worker 1 (stage"), HasSubstr("killed on purpose")));
    }
  }
}

TEST(FaultyWorldTest, AWorkerThatStopsAnsweringIsNoticedAtTheDeadline) {
  for (const Case& setup : fault_cases()) {
    const Faults faults{.kill = Faults::Kill{.worker = WorkerId{1}, .call = 4, .silent = true}};
    EXPECT_THAT(failure_by(setup, faults, std::chrono::milliseconds(300)),
                AllOf(HasSubstr("timeout: "), HasSubstr("worker 1 (stage"), HasSubstr("waits")));
  }
}

}  // namespace
}  // namespace penstock::runtime::testing
