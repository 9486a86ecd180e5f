// What every fabric must do, whatever carries it. A rig makes the worlds of all ranks, and the
// workers of all ranks run as threads here; or, where ranks must be processes, that of this
// process, which is one of several that run the same tests (tests/e2e/mpi_conformance.sh). A new
// fabric adds a rig.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "penstock/runtime/fabric/c10d/gloo.h"
#include "penstock/runtime/fabric/faulty/testing_faulty_world.h"
#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/runtime/fabric/mesh/testing_mesh_ranks.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/verify/verify.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::Action;
using schedule::Op;
using schedule::Schedule;
using ::testing::HasSubstr;

using Worlds = std::vector<std::unique_ptr<World>>;

struct Rig {
  std::string name;
  /// The worlds of all ranks, by rank, or of this process's own.
  std::function<Worlds(const std::vector<int>& rank_of_worker)> make;
  bool has_all_ranks = true;
};

Worlds with_faults(Worlds worlds, const Faults& faults) {
  for (auto& world : worlds) world = make_faulty_world(std::move(world), faults);
  return worlds;
}

std::vector<Rig> rigs() {
  std::vector<Rig> all{
      {"local", [](const std::vector<int>& ranks) { return make_local_ranks(ranks); }},
      {"late",
       [](const std::vector<int>& ranks) {
         return with_faults(make_local_ranks(ranks), {.seed = 3, .delay_share = 0.3});
       }},
      {"overtaking",
       [](const std::vector<int>& ranks) {
         return with_faults(make_local_ranks(ranks),
                            {.seed = 4, .delay_share = 0.05, .reorder_share = 0.7});
       }},
      {"mesh", [](const std::vector<int>& ranks) { return make_mesh_ranks(ranks); }},
      {"mesh_by_memory",
       [](const std::vector<int>& ranks) {
         return make_mesh_ranks(ranks, {.same_host_bytes = 1});
       }},
      {"mesh_by_connection",
       [](const std::vector<int>& ranks) {
         return make_mesh_ranks(ranks, {.same_host_memory = false});
       }},
      {"mesh_overtaking",
       [](const std::vector<int>& ranks) {
         return with_faults(make_mesh_ranks(ranks),
                            {.seed = 5, .delay_share = 0.05, .reorder_share = 0.7});
       }},
  };
  if (has_gloo()) all.push_back({"gloo", make_gloo_ranks});
  if (is_mpi_rank()) all.push_back({"mpi", make_mpi_ranks, /*has_all_ranks=*/false});
  return all;
}

constexpr std::chrono::seconds kLong{20};

Wait in_time(std::chrono::milliseconds timeout = kLong) { return wait_for(timeout); }

/// A run on all ranks: opens their fabrics, runs `body(fabric, worker)` in a thread per worker, and
/// finishes. Returns what each rank's finish() gave or threw.
struct Ended {
  std::vector<RunOutcome> outcomes;
  std::vector<std::string> failures;  ///< per rank, empty where there is none
  std::vector<WorkerId> workers;      ///< that ran here
};

class ConformanceTest : public ::testing::TestWithParam<Rig> {
 protected:
  template <class Body>
  Ended run(const std::vector<int>& rank_of_worker, const RunSetup& setup, Body body) {
    const Worlds worlds = GetParam().make(rank_of_worker);
    Ended ended;
    ended.outcomes.resize(worlds.size());
    ended.failures.resize(worlds.size());
    for (const auto& world : worlds) {
      for (const WorkerId worker : world->site().own_workers()) ended.workers.push_back(worker);
    }
    std::vector<std::jthread> ranks;
    for (size_t r = 0; r < worlds.size(); ++r) {
      ranks.emplace_back([&, r] {
        Wait wait = in_time();
        const std::unique_ptr<Fabric> fabric = worlds[r]->open(setup, wait);
        {
          std::vector<std::jthread> workers;
          for (const WorkerId worker : worlds[r]->site().own_workers()) {
            workers.emplace_back([&, worker] {
              try {
                body(*fabric, worker);
              } catch (...) {
                fabric->fail(std::current_exception());
              }
            });
          }
        }
        try {
          ended.outcomes[r] = fabric->finish(wait);
        } catch (const std::exception& error) {
          ended.failures[r] = error.what();
        }
      });
    }
    ranks.clear();
    return ended;
  }

  /// All workers on one rank, each on its own, two by two.
  static std::vector<std::vector<int>> placements(int workers) {
    std::vector<int> apart;
    std::vector<int> pairs;
    for (int w = 0; w < workers; ++w) {
      apart.push_back(w);
      pairs.push_back(w / 2);
    }
    return {std::vector<int>(static_cast<size_t>(workers), 0), apart, pairs};
  }
};

Schedule lowered(Strategy strategy, schedule::ScheduleShape shape) {
  shape = with_placement(strategy, shape);
  return lower(generate(strategy, shape), schedule::chain_links(shape.num_stages()));
}

model::Tensors payload_of(const Message& message);

RunSetup setup_of(const Schedule& schedule) {
  RunSetup setup{.schedule = schedule,
                 .weights = std::vector<StageWeights>(
                     schedule.shape.replicas.size(),
                     {.shapes = {{70'001}, {2, 3}, {5}}, .layer_ends = {1, 2, 3}})};
  setup.mini_batch_samples = [&schedule](MiniBatchId) { return schedule.shape.accumulate; };
  setup.layout = [](const Message& message) {
    std::vector<TensorLayout> layout;
    for (const at::Tensor& tensor : payload_of(message)) {
      layout.push_back(tensor.defined() ? TensorLayout{tensor.sizes().vec(), tensor.scalar_type()}
                                        : TensorLayout{.sizes = {7}});
    }
    return layout;
  };
  setup.credits = std::max<int64_t>(4, verify::min_credits(schedule));
  return setup;
}

/// What a message holds: a tensor of a length and values that only it has, an empty one, one in
/// another type, one that is not contiguous, and an undefined one.
model::Tensors payload_of(const Message& message) {
  Rng rng(derive_seed(message.backward, message.from.value, message.to.value,
                      message.micro_batch.value));
  const auto length = static_cast<int64_t>(1 + rng.below(50));
  const at::Tensor base = at::full({length, 3}, rng.uniform());
  base.select(0, 0).fill_(static_cast<double>(rng.below(1000)));
  return {base, at::zeros({0, 4}), at::full({2}, message.micro_batch.value, at::kLong), base.t(),
          at::Tensor()};
}

void expect_same(const model::Tensors& found, const model::Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
    if (!found[i].defined()) continue;
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << i;
    EXPECT_TRUE(found[i].equal(expected[i])) << i;
  }
}

TEST_P(ConformanceTest, EveryMessageOfEveryScheduleArrivesAsItWasSent) {
  const schedule::ScheduleShape chain{
      .replicas = {1, 1, 1, 1}, .micro_batches = 8, .accumulate = 4};
  for (const Strategy kind : plan::scheduled_strategies()) {
    if (kind == Strategy::Serial || kind == Strategy::DataParallel) continue;
    schedule::ScheduleShape shape = chain;
    shape.policy = plan::default_policy(kind);
    if (plan::traits(kind).replicas_per_copy() == 2) shape.replicas = {2, 2, 2, 2};
    if (kind == Strategy::OneFOneB) shape.replicas = {2, 1, 1, 1};
    const Schedule schedule = lowered(kind, shape);
    for (const auto& ranks : placements(static_cast<int>(schedule.workers.size()))) {
      std::atomic<int64_t> received = 0;
      const Ended ended = run(ranks, setup_of(schedule), [&](Fabric& fabric, WorkerId worker) {
        for (const Action& action : schedule.workers[worker.index()]) {
          Wait wait = in_time();
          const Message message = message_of(action);
          if (schedule::is_send(action.op)) {
            ASSERT_EQ(fabric.send(message, payload_of(message), wait), WaitResult::Ready);
          } else if (schedule::is_receive(action.op)) {
            model::Tensors tensors;
            ASSERT_EQ(fabric.receive(message, tensors, wait), WaitResult::Ready);
            expect_same(tensors, payload_of(message));
            ++received;
          }
        }
      });
      EXPECT_THAT(ended.failures, ::testing::Each("")) << plan::to_string(kind);
      int64_t expected = 0;
      for (const WorkerId worker : ended.workers) {
        const auto& actions = schedule.workers[worker.index()];
        expected += std::count_if(actions.begin(), actions.end(), [](const Action& action) {
          return schedule::is_receive(action.op);
        });
      }
      EXPECT_EQ(received, expected);
      EXPECT_TRUE(expected > 0 || !GetParam().has_all_ranks);
    }
  }
}

TEST_P(ConformanceTest, AMessageThatDoesNotComeIsATimeout) {
  const Schedule schedule =
      lowered(Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2});
  for (const auto& ranks : placements(2)) {
    run(ranks, setup_of(schedule), [&](Fabric& fabric, WorkerId worker) {
      if (worker.value == 0) return;
      Wait wait = in_time(std::chrono::milliseconds(30));
      model::Tensors tensors;
      EXPECT_EQ(fabric.receive({false, StageId{0}, StageId{1}, MicroBatchId{0}}, tensors, wait),
                WaitResult::TimedOut);
      EXPECT_GE(wait.waited_ns, 20'000'000);
    });
  }
}

/// The groups of a replica; some gradients are missing.
Partials partials_with_gaps(int64_t replica, int64_t replicas, int64_t groups, int64_t round) {
  Partials partials;
  for (int64_t g = replica; g < groups; g += replicas) {
    const double value = std::pow(-7.3, static_cast<double>((g * 5 + round) % 11));
    partials.push_back({g,
                        {at::full({70'001}, value),
                         g % 2 == 0 ? at::full({2, 3}, value) : at::Tensor(), at::Tensor()}});
  }
  return partials;
}

TEST_P(ConformanceTest, SumsAreThoseOfOneThreadBitForBit) {
  constexpr int64_t kGroups = 12;
  constexpr int64_t kRounds = 10;
  for (const int replicas : {2, 3, 4}) {
    const Schedule schedule =
        lowered(Strategy::DataParallel,
                {.replicas = {replicas}, .micro_batches = kGroups, .accumulate = kGroups});
    for (const auto& ranks : placements(replicas)) {
      const Ended ended = run(ranks, setup_of(schedule), [&](Fabric& fabric, WorkerId worker) {
        for (int64_t round = 0; round < kRounds; ++round) {
          Wait wait = in_time();
          model::Tensors sums;
          ASSERT_EQ(sum_all(fabric, StageId{0}, worker.value,
                            partials_with_gaps(worker.value, replicas, kGroups, round), sums, wait),
                    WaitResult::Ready);
          expect_same(sums, sum_of(partials_with_gaps(0, 1, kGroups, round), 3));
        }
      });
      EXPECT_THAT(ended.failures, ::testing::Each(""));
    }
  }
}

/// With 16 bits the groups and the sum are rounded, whatever the fabric moves.
TEST_P(ConformanceTest, SumsIn16BitsAreRoundedAlike) {
  constexpr int64_t kGroups = 6;
  for (const FloatType precision : {FloatType::BFloat16, FloatType::Float16}) {
    const auto type = precision == FloatType::BFloat16 ? at::kBFloat16 : at::kHalf;
    const auto partials = [](int64_t replica, int64_t replicas) {
      Partials partials;
      for (int64_t g = replica; g < kGroups; g += replicas)
        partials.push_back({g, {at::arange(1, 70'001) / static_cast<double>(3 * g + 7)}});
      return partials;
    };
    at::Tensor sum = at::zeros({70'000});
    for (const GroupGradients& group : partials(0, 1))
      sum = sum + group.sums[0].to(type).to(at::kFloat);
    const at::Tensor expected = sum.to(type).to(at::kFloat);
    for (const int replicas : {2, 3}) {
      const Schedule schedule =
          lowered(Strategy::DataParallel,
                  {.replicas = {replicas}, .micro_batches = kGroups, .accumulate = kGroups});
      RunSetup setup = setup_of(schedule);
      setup.weights = {{.shapes = {{70'000}}, .layer_ends = {1}}};
      setup.gradient_precision = precision;
      for (const auto& ranks : placements(replicas)) {
        const Ended ended = run(ranks, setup, [&](Fabric& fabric, WorkerId worker) {
          Wait wait = in_time();
          model::Tensors sums;
          ASSERT_EQ(sum_all(fabric, StageId{0}, worker.value, partials(worker.value, replicas),
                            sums, wait),
                    WaitResult::Ready);
          expect_same(sums, {expected});
        });
        EXPECT_THAT(ended.failures, ::testing::Each(""));
      }
    }
  }
}

at::Tensor tied_gradient(int64_t group, int64_t copy, int64_t round) {
  if ((group + copy + round) % 5 == 0) return {};
  return at::full({5}, std::pow(-3.1, static_cast<double>((group + 2 * copy + round) % 9)));
}

TEST_P(ConformanceTest, NormsAndTiedSumsAreThoseOfOneThreadBitForBit) {
  constexpr int64_t kRounds = 12;
  constexpr int kWorkers = 4;
  const Schedule schedule = lowered(
      Strategy::GPipe,
      {.replicas = {1, 1, 1, 1}, .micro_batches = kRounds, .accumulate = 1, .global_norm = true});
  RunSetup setup = setup_of(schedule);
  setup.ties = {{.copies = 2, .weight = 1}, {.copies = 3, .weight = 4}};
  setup.num_model_weights = 9;
  const auto square = [](size_t weight, int64_t round) {
    return std::abs(std::sin(static_cast<double>(weight + 1) * static_cast<double>(round + 2)));
  };
  const auto summed = [](int64_t group, int64_t copies, int64_t round) {
    at::Tensor sum;
    for (int64_t copy = 0; copy < copies; ++copy) {
      const at::Tensor part = tied_gradient(group, copy, round);
      if (part.defined()) sum = sum.defined() ? sum + part : part;
    }
    return sum;
  };
  for (const auto& ranks : placements(kWorkers)) {
    const Ended ended = run(ranks, setup, [&](Fabric& fabric, WorkerId worker) {
      for (int64_t round = 0; round < kRounds; ++round) {
        // Group 0 lies on workers 0 and 3, group 1 on 1, 2 and 3; the others have weights alone.
        NormShare share{.worker = worker, .mini_batch = MiniBatchId{round}};
        const auto hold = [&](size_t group, size_t copy) {
          share.tied.push_back(
              {group, copy,
               tied_gradient(static_cast<int64_t>(group), static_cast<int64_t>(copy), round)});
          share.wanted.push_back(group);
        };
        if (worker.value == 0) hold(0, 0);
        if (worker.value == 3) hold(0, 1);
        if (worker.value >= 1) hold(1, static_cast<size_t>(worker.value) - 1);
        for (const size_t weight : {0, 2, 3, 5, 6, 7, 8}) {
          if (static_cast<int>(weight) % kWorkers == worker.value)
            share.squares.push_back({weight, square(weight, round)});
        }
        const std::vector<size_t> wanted = share.wanted;
        Wait wait = in_time();
        NormTotals totals;
        ASSERT_EQ(fabric.combine(std::move(share), totals, wait), WaitResult::Ready);
        const at::Tensor sums[] = {summed(0, 2, round), summed(1, 3, round)};
        double total = 0;
        for (size_t weight = 0; weight < 9; ++weight) {
          total += weight == 1   ? sum_of_squares(sums[0])
                   : weight == 4 ? sum_of_squares(sums[1])
                                 : square(weight, round);
        }
        EXPECT_EQ(totals.norm, std::sqrt(total));
        for (const size_t group : wanted) expect_same({totals.tied_sums.at(group)}, {sums[group]});
      }
    });
    EXPECT_THAT(ended.failures, ::testing::Each(""));
  }
}

TEST_P(ConformanceTest, AnEarlyStopEndsAllWorkersAfterTheSameMiniBatch) {
  constexpr int64_t kMiniBatches = 200;
  constexpr int kWorkers = 4;
  const Schedule schedule = lowered(Strategy::OneFOneB, {.replicas = {1, 1, 1, 1},
                                                         .micro_batches = kMiniBatches,
                                                         .accumulate = 1,
                                                         .policy = schedule::WeightPolicy::Stash});
  for (const bool by_flag : {true, false}) {
    for (const auto& ranks : placements(kWorkers)) {
      RunSetup setup = setup_of(schedule);
      std::atomic<bool> stop{false};
      if (by_flag) setup.stop = &stop;
      std::atomic<int> inside = 0;
      std::atomic<bool> asked{false};
      setup.on_mini_batch = [&](MiniBatchId t, const MiniBatchStats& stats) {
        EXPECT_EQ(inside++, 0) << "one call at a time";
        EXPECT_EQ(stats.loss_sum, static_cast<double>(t.value));
        if (by_flag && t.value >= 20) stop = true;
        if (t.value >= 20) asked = true;
        --inside;
        return by_flag || t.value < 20;
      };
      std::vector<int64_t> last(kWorkers, -1);
      const Ended ended = run(ranks, setup, [&](Fabric& fabric, WorkerId worker) {
        for (int64_t t = 0; t < kMiniBatches; ++t) {
          if (!fabric.begin(worker, MiniBatchId{t})) continue;
          last[worker.index()] = t;
          if (worker.value == kWorkers - 1) {
            fabric.report(MiniBatchId{t}, MicroBatchId{t},
                          {.loss_sum = static_cast<double>(t), .correct = 1, .samples = 1});
          }
          std::this_thread::sleep_for(std::chrono::microseconds(30 * (worker.value + 1)));
          // However busy the machine is: the stop comes before the end. Other processes do not see
          // when rank 0 asks for it.
          const auto patience = GetParam().has_all_ranks ? kLong : std::chrono::seconds(1);
          const auto half = std::chrono::steady_clock::now();
          while (t == kMiniBatches / 2 && !asked &&
                 std::chrono::steady_clock::now() - half < patience)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (t > kMiniBatches / 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      });
      EXPECT_THAT(ended.failures, ::testing::Each(""));
      for (const RunOutcome& outcome : ended.outcomes) {
        EXPECT_GT(outcome.mini_batches.size(), 20u);
        EXPECT_LT(outcome.mini_batches.size(), static_cast<size_t>(kMiniBatches));
        for (const WorkerId worker : ended.workers)
          EXPECT_EQ(last[worker.index()], std::ssize(outcome.mini_batches) - 1);
        for (size_t t = 0; t < outcome.mini_batches.size(); ++t)
          EXPECT_EQ(outcome.mini_batches[t].loss_sum, static_cast<double>(t));
      }
    }
  }
}

TEST_P(ConformanceTest, LossesAreAddedInTheOrderOfTheMicroBatches) {
  const Schedule schedule =
      lowered(Strategy::DataParallel, {.replicas = {4}, .micro_batches = 8, .accumulate = 8});
  const auto loss = [](int64_t b) { return std::pow(-1e5, static_cast<double>(b % 4)) / 3; };
  double expected = 0;
  for (int64_t b = 0; b < 8; ++b) expected += loss(b);
  for (const auto& ranks : placements(4)) {
    const Ended ended = run(ranks, setup_of(schedule), [&](Fabric& fabric, WorkerId worker) {
      if (!fabric.begin(worker, MiniBatchId{0})) return;
      for (int64_t b = 7 - worker.value; b >= 0; b -= 4)
        fabric.report(MiniBatchId{0}, MicroBatchId{b}, {.loss_sum = loss(b), .samples = 1});
    });
    for (const RunOutcome& outcome : ended.outcomes) {
      ASSERT_EQ(outcome.mini_batches.size(), 1u);
      EXPECT_EQ(outcome.mini_batches[0].loss_sum, expected);
      EXPECT_EQ(outcome.mini_batches[0].samples, 8);
    }
  }
}

TEST_P(ConformanceTest, TheFirstFailureWakesEverybodyAndIsToldOnEveryRank) {
  // Worker 3 fails while 0 waits for a message, 1 for its replica, 2 for the norm.
  const Schedule schedule =
      lowered(Strategy::GPipe,
              {.replicas = {2, 2}, .micro_batches = 4, .accumulate = 4, .global_norm = true});
  RunSetup setup = setup_of(schedule);
  setup.num_model_weights = 6;
  for (const auto& ranks : placements(4)) {
    const Ended ended = run(ranks, setup, [&](Fabric& fabric, WorkerId worker) {
      Wait wait = in_time();
      model::Tensors tensors;
      NormTotals totals;
      switch (worker.value) {
        case 0:
          EXPECT_EQ(fabric.receive({true, StageId{1}, StageId{0}, MicroBatchId{0}}, tensors, wait),
                    WaitResult::Closed);
          break;
        case 1:
          EXPECT_EQ(sum_all(fabric, StageId{0}, 1, {{1, model::Tensors(3)}}, tensors, wait),
                    WaitResult::Closed);
          break;
        case 2:
          EXPECT_EQ(fabric.combine({.worker = worker}, totals, wait), WaitResult::Closed);
          break;
        default:
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          throw RuntimeError("worker 3 has had enough");
      }
      fabric.fail(std::make_exception_ptr(RuntimeError("a later failure")));
    });
    for (const std::string& failure : ended.failures)
      EXPECT_THAT(failure, HasSubstr("worker 3 has had enough"));
  }
}

/// Two stages, with three members and with two.
Schedule with_two_teams() {
  const Schedule whole = schedule::generate(
      Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 2});
  return schedule::lower(schedule::with_teams(whole, {3, 2}), {});
}

TeamExchange exchange_of(const Schedule& schedule, WorkerId worker, int64_t number) {
  const schedule::TeamPlace place = schedule::place_in_team(schedule.shape, StageId{worker.value});
  return {.first = place.first,
          .member = place.member,
          .number = number,
          .op = number % 2 == 0 ? Op::Forward : Op::Backward,
          .micro_batch = MicroBatchId{number / 2}};
}
int members_of(const TeamExchange& exchange) { return exchange.first.value == 0 ? 3 : 2; }

/// What a member gives another one: of all sizes, some empty, some not contiguous, of two types.
at::Tensor given(const TeamExchange& exchange, int from, int to) {
  const int64_t kind = (exchange.number + from) % 4;
  const auto value =
      static_cast<double>(exchange.number * 100 + from * 10 + to + 1000 * exchange.first.value);
  if (kind == 0) return at::full({0, 4}, value);
  if (kind == 1) return at::full({70'001}, value);
  if (kind == 2) return at::full({3, 2}, value).t();
  return at::full({6}, static_cast<int64_t>(value), at::kLong);
}

using Change = std::function<at::Tensor(const at::Tensor&)>;

/// Makes the exchange, with changed tensors where there is a `change`; what the others gave.
WaitResult make_exchange(Fabric& fabric, const TeamExchange& exchange, Wait& wait,
                         model::Tensors& taken, const Change& change = {}) {
  model::Tensors parts;
  std::vector<TensorLayout> expected;
  for (int m = 0; m < members_of(exchange); ++m) {
    const at::Tensor like = given(exchange, m, exchange.member);
    expected.push_back({.sizes = like.sizes().vec(), .type = like.scalar_type()});
    parts.emplace_back();
    if (m == exchange.member) continue;
    const at::Tensor part = given(exchange, exchange.member, m);
    parts.back() = change ? change(part) : part;
  }
  fabric.start_exchange(exchange, std::move(parts), expected);
  taken.assign(expected.size(), at::Tensor());
  for (size_t m = 0; m < expected.size(); ++m) {
    const auto from = static_cast<int>(m);
    if (from == exchange.member) continue;
    const WaitResult result = fabric.finish_exchange(exchange, from, expected[m], taken[m], wait);
    if (result != WaitResult::Ready) return result;
  }
  return WaitResult::Ready;
}

TEST_P(ConformanceTest, MembersOfATeamGetWhatTheOthersGive) {
  const Schedule schedule = with_two_teams();
  for (const auto& ranks : placements(5)) {
    const Ended ended = run(ranks, setup_of(schedule), [&](Fabric& fabric, WorkerId worker) {
      for (int64_t number = 0; number < 24; ++number) {
        const TeamExchange exchange = exchange_of(schedule, worker, number);
        Wait wait = in_time();
        model::Tensors taken;
        ASSERT_EQ(make_exchange(fabric, exchange, wait, taken), WaitResult::Ready);
        for (size_t m = 0; m < taken.size(); ++m) {
          const auto from = static_cast<int>(m);
          if (from != exchange.member)
            expect_same({taken[m]}, {given(exchange, from, exchange.member)});
        }
      }
    });
    EXPECT_THAT(ended.failures, ::testing::Each(""));
  }
}

TEST_P(ConformanceTest, AMemberThatGivesSomethingElseEndsTheRun) {
  const Schedule schedule = with_two_teams();
  const std::vector<Change> changes = {
      [](const at::Tensor& tensor) {
        return at::cat({tensor, tensor});
      },
      [](const at::Tensor& tensor) { return tensor.view(at::kDouble); },
      [](const at::Tensor& tensor) {
        return tensor.view({2, 3});
      }};
  for (const Change& change : changes) {
    for (const auto& ranks : placements(5)) {
      std::atomic<int> made = 0;
      const Ended ended = run(ranks, setup_of(schedule), [&](Fabric& fabric, WorkerId worker) {
        // In which member 1 gives 6 whole numbers.
        const TeamExchange exchange = exchange_of(schedule, worker, 2);
        if (exchange.first.value == 3) return;
        Wait wait = in_time();
        model::Tensors taken;
        if (make_exchange(fabric, exchange, wait, taken,
                          exchange.member == 1 ? change : Change()) == WaitResult::Ready)
          ++made;
      });
      // The odd one has been given what it expects.
      EXPECT_LE(made, 1);
      EXPECT_THAT(ended.failures, ::testing::Each(HasSubstr("has given something else")));
    }
  }
}

TEST_P(ConformanceTest, AMemberThatDoesNotComeIsATimeoutAndAFailureWakesTheOthers) {
  const Schedule schedule = with_two_teams();
  for (const auto& ranks : placements(5)) {
    std::atomic<int> late = 0;
    const Ended ended = run(ranks, setup_of(schedule), [&](Fabric& fabric, WorkerId worker) {
      const TeamExchange exchange = exchange_of(schedule, worker, 0);
      model::Tensors taken;
      if (exchange.first.value == 0) {
        if (exchange.member == 2) return;
        Wait soon = in_time(std::chrono::milliseconds(30));
        EXPECT_EQ(make_exchange(fabric, exchange, soon, taken), WaitResult::TimedOut);
        EXPECT_GE(soon.waited_ns, 20'000'000);
        ++late;
        return;
      }
      if (exchange.member == 1) {
        // Other processes do not say when they are there.
        const auto patience = GetParam().has_all_ranks ? std::chrono::milliseconds(kLong)
                                                       : std::chrono::milliseconds(500);
        const auto begun = std::chrono::steady_clock::now();
        while (late < 2 && std::chrono::steady_clock::now() - begun < patience)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        throw RuntimeError("member 1 has had enough");
      }
      Wait wait = in_time();
      EXPECT_EQ(make_exchange(fabric, exchange, wait, taken), WaitResult::Closed);
    });
    for (const std::string& failure : ended.failures)
      EXPECT_THAT(failure, HasSubstr("member 1 has had enough"));
  }
}

TEST_P(ConformanceTest, TensorsAreBroughtFromRankToRank) {
  for (const auto& rank_of_worker : placements(4)) {
    const Worlds worlds = GetParam().make(rank_of_worker);
    std::vector<std::jthread> ranks;
    for (const auto& world : worlds) {
      ranks.emplace_back([&world] {
        const Site& site = world->site();
        for (int from = 0; from < site.num_ranks(); ++from) {
          for (int to = 0; to < site.num_ranks(); ++to) {
            const model::Tensors tensors{at::full({70'001}, static_cast<double>(from)),
                                         at::Tensor(), at::full({0, 3}, to, at::kLong),
                                         at::full({2, 3}, from * 10.0 + to).t()};
            Wait wait = in_time();
            const model::Tensors brought =
                world->bring(from, to, site.rank == from ? tensors : model::Tensors{}, wait);
            expect_same(brought, site.rank == to ? tensors : model::Tensors{});
          }
        }
      });
    }
  }
}

TEST_P(ConformanceTest, RanksAgreeBetweenRuns) {
  for (const auto& rank_of_worker : placements(4)) {
    const Worlds worlds = GetParam().make(rank_of_worker);
    std::vector<std::jthread> ranks;
    for (const auto& world : worlds) {
      ranks.emplace_back([&world] {
        const Site& site = world->site();
        for (int round = 0; round < 5; ++round) {
          Wait wait = in_time();
          const auto texts =
              world->all_gather(std::string(static_cast<size_t>(site.rank + round), 'x'), wait);
          ASSERT_EQ(std::ssize(texts), site.num_ranks());
          for (size_t r = 0; r < texts.size(); ++r)
            EXPECT_EQ(texts[r].size(), r + static_cast<size_t>(round));
          // Replica w of a stage is on worker w; rank 0's workers have none of the second stage.
          std::map<int, model::Tensors> own;
          for (const WorkerId worker : site.own_workers())
            own[worker.value] = {at::full({3}, std::pow(3.3, worker.value))};
          const model::Tensors means = world->average(4, own, wait);
          const at::Tensor sum = at::full({3}, 1.0) + at::full({3}, 3.3) +
                                 at::full({3}, std::pow(3.3, 2)) + at::full({3}, std::pow(3.3, 3));
          expect_same(means, own.empty() ? model::Tensors() : model::Tensors{sum / 4.0});
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, ConformanceTest, ::testing::ValuesIn(rigs()),
                         [](const auto& rig) { return rig.param.name; });

}  // namespace
}  // namespace penstock::runtime::testing
