// Sums of gradients over ranks by every method, in every precision, with and without servers:
// values and bytes.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/schedule.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::GradientSync;
using ::testing::Each;

schedule::Schedule data_parallel(int replicas, int64_t groups) {
  return schedule::lower(
      schedule::generate(schedule::Strategy::DataParallel,
                         {.replicas = {replicas}, .micro_batches = groups, .accumulate = groups}),
      {});
}

/// A large layer, one whose second weight has gradients in some groups only, a small one without a
/// gradient on replica 0 of 4, one without any.
const StageWeights kWeights{.shapes = {{900, 200}, {7}, {3, 5}, {11}, {2}},
                            .layer_ends = {1, 3, 4, 5}};

Partials partials_of(int64_t replica, int64_t replicas, int64_t groups, int64_t round,
                     double base = 7.3) {
  Partials partials;
  for (int64_t g = replica; g < groups; g += replicas) {
    const double value = std::pow(-base, static_cast<double>((g * 5 + round) % 11));
    model::Tensors sums;
    for (const model::Shape& shape : kWeights.shapes)
      sums.push_back(at::full(shape, value) + at::arange(shape.back()));
    if (g % 2 == 1) sums[2] = at::Tensor();
    if (g % 4 == 0) sums[3] = at::Tensor();
    sums[4] = at::Tensor();
    partials.push_back({g, std::move(sums)});
  }
  return partials;
}

/// Calls body(fabric, worker) for every worker, each in a thread of its own; servers only add.
template <class Body>
std::vector<std::string> run(const std::vector<std::unique_ptr<World>>& worlds,
                             const RunSetup& setup, Body body) {
  std::vector<std::string> failures(worlds.size());
  std::vector<std::jthread> ranks;
  for (size_t r = 0; r < worlds.size(); ++r) {
    ranks.emplace_back([&, r] {
      try {
        Wait wait = wait_for(std::chrono::seconds(20));
        const auto fabric = worlds[r]->open(setup, wait);
        {
          std::vector<std::jthread> workers;
          for (const WorkerId worker : worlds[r]->site().own_workers())
            workers.emplace_back([&, worker] { body(*fabric, worker); });
        }
        fabric->finish(wait);
      } catch (const std::exception& error) {
        failures[r] = error.what();
      }
    });
  }
  ranks.clear();
  return failures;
}

struct Way {
  GradientSync sync;
  FloatType precision;
};

class StageSumTest : public ::testing::TestWithParam<Way> {};

at::ScalarType type_of(FloatType precision) {
  return precision == FloatType::Float32    ? at::kFloat
         : precision == FloatType::BFloat16 ? at::kBFloat16
                                            : at::kHalf;
}

/// Of rounded parts, in float32.
model::Tensors added_in_order(const Partials& all, FloatType precision) {
  model::Tensors sums(kWeights.shapes.size());
  for (const GroupGradients& group : all) {
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!group.sums[i].defined()) continue;
      const at::Tensor part = group.sums[i].to(type_of(precision)).to(at::kFloat);
      sums[i] = sums[i].defined() ? sums[i] + part : part;
    }
  }
  return sums;
}

/// What plan/sync_precision.h says, in other words: the groups of all replicas in their order.
model::Tensors expected_sums(const Partials& all, FloatType precision) {
  model::Tensors sums = added_in_order(all, precision);
  for (at::Tensor& sum : sums) {
    if (sum.defined()) sum = sum.to(type_of(precision)).to(at::kFloat);
  }
  return sums;
}

/// The sums of one thread that adds machine by machine.
model::Tensors sums_of_machines(const std::vector<int>& machine_of_replica, int64_t groups,
                                int64_t round, FloatType precision, double base) {
  const auto replicas = static_cast<int64_t>(machine_of_replica.size());
  Partials machines(1 + static_cast<size_t>(*std::max_element(machine_of_replica.begin(),
                                                              machine_of_replica.end())));
  for (size_t m = 0; m < machines.size(); ++m) {
    Partials inside;
    for (const GroupGradients& group : partials_of(0, 1, groups, round, base)) {
      if (machine_of_replica[static_cast<size_t>(group.group % replicas)] == static_cast<int>(m))
        inside.push_back(group);
    }
    machines[m] = {static_cast<int64_t>(m), added_in_order(inside, precision)};
  }
  return expected_sums(machines, precision);
}

TEST_P(StageSumTest, SumsAreThoseOfOneThread) {
  constexpr int64_t kGroups = 12;
  constexpr int64_t kRounds = 6;
  // What float16 can hold.
  const double base = GetParam().precision == FloatType::Float16 ? 2.1 : 7.3;
  // A ring rounds once per replica.
  const double tolerance = is_short(GetParam().precision) ? 0.02 : 1e-4;
  for (const int replicas : {2, 3, 4}) {
    const schedule::Schedule schedule = data_parallel(replicas, kGroups);
    RunSetup setup{.schedule = schedule,
                   .weights = {kWeights},
                   .sync = GetParam().sync,
                   .gradient_precision = GetParam().precision};
    setup.mini_batch_samples = [](MiniBatchId) { return kGroups; };
    for (const int servers : {0, 1, 3}) {
      for (const int per_rank : {1, 2}) {
        if (per_rank == replicas) continue;
        std::vector<int> rank_of_worker;
        for (int w = 0; w < replicas; ++w) rank_of_worker.push_back(w / per_rank);
        const auto worlds = make_mesh_ranks(rank_of_worker, {}, servers);
        const auto failures = run(worlds, setup, [&](Fabric& fabric, WorkerId worker) {
          EXPECT_TRUE(fabric.adds_in_background(StageId{0}));
          for (int64_t round = 0; round < kRounds; ++round) {
            Wait wait = wait_for(std::chrono::seconds(20));
            model::Tensors sums;
            ASSERT_EQ(
                sum_all(fabric, StageId{0}, worker.value,
                        partials_of(worker.value, replicas, kGroups, round, base), sums, wait),
                WaitResult::Ready);
            const model::Tensors expected =
                expected_sums(partials_of(0, 1, kGroups, round, base), GetParam().precision);
            for (size_t i = 0; i < expected.size(); ++i) {
              const at::Tensor& sum = expected[i];
              ASSERT_EQ(sums[i].defined(), sum.defined()) << i;
              if (!sum.defined()) continue;
              ASSERT_EQ(sums[i].sizes(), sum.sizes());
              if (GetParam().sync == GradientSync::Ring ||
                  GetParam().sync == GradientSync::Hierarchical)
                EXPECT_TRUE(at::allclose(sums[i], sum, tolerance, base == 7.3 ? 1e3 : 1)) << i;
              else
                EXPECT_TRUE(sums[i].equal(sum)) << i << " round " << round;
            }
          }
        });
        EXPECT_THAT(failures, Each(""));
      }
    }
  }
}

/// Machines of one or several ranks, with one or several replicas each.
class HierarchicalSumTest : public ::testing::TestWithParam<FloatType> {};

TEST_P(HierarchicalSumTest, SumsAreThoseOfOneThreadThatAddsMachineByMachine) {
  constexpr int64_t kGroups = 10;
  constexpr int64_t kRounds = 4;
  const double base = GetParam() == FloatType::Float16 ? 2.1 : 7.3;
  struct Layout {
    std::vector<int> rank_of_worker;
    std::vector<int> host_of_rank;
  };
  for (const Layout& layout :
       {Layout{{0, 1}, {0, 1}}, Layout{{0, 0, 1, 1}, {0, 1}}, Layout{{0, 1, 2, 3}, {0, 0, 1, 1}},
        Layout{{0, 0, 1, 2, 2}, {0, 0, 1}}, Layout{{0, 1, 2, 3}, {0, 1, 0, 1}},
        Layout{{0, 1, 2}, {0, 0, 0}}, Layout{{0, 0, 1, 2, 3}, {0, 1, 1, 2}}}) {
    const auto replicas = static_cast<int>(layout.rank_of_worker.size());
    std::vector<int> machine_of_replica;
    for (const int rank : layout.rank_of_worker)
      machine_of_replica.push_back(layout.host_of_rank[static_cast<size_t>(rank)]);
    const schedule::Schedule schedule = data_parallel(replicas, kGroups);
    RunSetup setup{.schedule = schedule,
                   .weights = {kWeights},
                   .sync = GradientSync::Hierarchical,
                   .gradient_precision = GetParam()};
    setup.mini_batch_samples = [](MiniBatchId) { return kGroups; };
    for (const int servers : {0, 1, 3}) {
      std::vector<int> hosts = layout.host_of_rank;
      for (int k = 0; k < servers; ++k) hosts.push_back(100 + k);
      const auto worlds = make_mesh_ranks(layout.rank_of_worker, {}, servers, hosts);
      const auto failures = run(worlds, setup, [&](Fabric& fabric, WorkerId worker) {
        for (int64_t round = 0; round < kRounds; ++round) {
          Wait wait = wait_for(std::chrono::seconds(20));
          model::Tensors sums;
          ASSERT_EQ(sum_all(fabric, StageId{0}, worker.value,
                            partials_of(worker.value, replicas, kGroups, round, base), sums, wait),
                    WaitResult::Ready);
          const model::Tensors expected =
              sums_of_machines(machine_of_replica, kGroups, round, GetParam(), base);
          for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(sums[i].defined(), expected[i].defined()) << i;
            if (!expected[i].defined()) continue;
            EXPECT_TRUE(sums[i].equal(expected[i])) << i << " round " << round;
          }
        }
      });
      EXPECT_THAT(failures, Each(""));
    }
  }
}

/// Sums of the replicas' own shares, then a gather: the bytes of a ring, 2 (n-1)/n M.
TEST(MeshGather, ReduceScatterAndGatherMoveTheBytesOfARing) {
  constexpr int64_t kRounds = 5;
  for (const int replicas : {2, 3, 4}) {
    const schedule::Schedule schedule = data_parallel(replicas, replicas);
    RunSetup setup{
        .schedule = schedule, .weights = {kWeights}, .state_sharing = {StateSharing::OwnSums}};
    setup.mini_batch_samples = [&](MiniBatchId) { return replicas; };
    const auto shares = weight_shares(kWeights.shapes, kWeights.layer_ends, replicas);
    std::vector<int> ranks;
    for (int w = 0; w < replicas; ++w) ranks.push_back(w);
    const auto worlds = make_mesh_ranks(ranks);
    const auto failures = run(worlds, setup, [&](Fabric& fabric, WorkerId worker) {
      const int r = worker.value;
      for (int64_t round = 0; round < kRounds; ++round) {
        Wait wait = wait_for(std::chrono::seconds(20));
        model::Tensors given, weights;
        for (const model::Shape& shape : kWeights.shapes) {
          given.push_back(at::full(shape, 1.0 + r + static_cast<double>(round)));
          weights.push_back(at::zeros(shape));
        }
        model::Tensors sums;
        ASSERT_EQ(sum_all(fabric, StageId{0}, r, {{r, given}}, sums, wait), WaitResult::Ready);
        double expected = 0;
        for (int i = 0; i < replicas; ++i) expected += 1.0 + i + static_cast<double>(round);
        const WeightShare& share = shares[static_cast<size_t>(r)];
        for (size_t w = 0; w < weights.size(); ++w) {
          const at::Tensor own = sums[w].view(-1).narrow(0, share[w].begin, share[w].length);
          EXPECT_TRUE(own.equal(at::full_like(own, expected)));
          weights[w].view(-1).narrow(0, share[w].begin, share[w].length).copy_(own);
        }
        const std::vector<size_t>& ends = fabric.bucket_ends(StageId{0});
        for (size_t b = 0; b < ends.size(); ++b) {
          const auto begin = weights.begin() + (b == 0 ? 0 : static_cast<int64_t>(ends[b - 1]));
          fabric.start_gather(StageId{0}, r, b,
                              {begin, weights.begin() + static_cast<int64_t>(ends[b])});
        }
        for (size_t b = 0; b < ends.size(); ++b)
          ASSERT_EQ(fabric.finish_gather(StageId{0}, r, b, wait), WaitResult::Ready);
        for (const at::Tensor& weight : weights)
          EXPECT_TRUE(weight.equal(at::full_like(weight, expected))) << "round " << round;
      }
    });
    EXPECT_THAT(failures, Each(""));
    int64_t numbers = 0;
    for (const model::Shape& shape : kWeights.shapes) numbers += c10::multiply_integers(shape);
    const double ring = 2.0 * (replicas - 1) / replicas * 4.0 * static_cast<double>(numbers);
    int64_t sent = 0;
    for (const auto& world : worlds) {
      sent += world->wire().sent_bytes;
      // A small bucket belongs to one replica, and a part names its groups.
      EXPECT_NEAR(static_cast<double>(world->wire().sent_bytes), kRounds * ring,
                  kRounds * (0.001 * ring + 200))
          << replicas;
    }
    EXPECT_NEAR(static_cast<double>(sent), kRounds * ring * replicas, kRounds * replicas * 100);
  }
}

/// Replica 1's gradients lie in a bucket that replica 0 has not given: nothing waits for the others
/// before it is needed.
TEST_P(StageSumTest, NobodyWaitsBeforeTheSumsAreTaken) {
  const schedule::Schedule schedule = data_parallel(2, 2);
  RunSetup setup{.schedule = schedule,
                 .weights = {kWeights},
                 .sync = GetParam().sync,
                 .gradient_precision = GetParam().precision};
  setup.mini_batch_samples = [](MiniBatchId) { return 2; };
  const auto worlds = make_mesh_ranks({0, 1});
  const auto part = [](Fabric& fabric, int replica, size_t bucket) {
    const std::vector<size_t>& ends = fabric.bucket_ends(StageId{0});
    model::Tensors sums;
    for (size_t w = bucket == 0 ? 0 : ends[bucket - 1]; w < ends[bucket]; ++w)
      sums.push_back(at::ones(kWeights.shapes[w]));
    return Partials{{replica, std::move(sums)}};
  };
  std::atomic<bool> taken = false;
  const auto failures = run(worlds, setup, [&](Fabric& fabric, WorkerId worker) {
    ASSERT_EQ(fabric.bucket_ends(StageId{0}).size(), 2U);
    Wait wait = wait_for(std::chrono::seconds(20));
    BucketSum sum;
    fabric.start_sum(StageId{0}, worker.value, 1, part(fabric, worker.value, 1));
    if (worker.value == 1) {
      Wait soon = wait_for(std::chrono::milliseconds(20));
      fabric.start_sum(StageId{0}, 1, 0, part(fabric, 1, 0));
      EXPECT_EQ(fabric.finish_sum(StageId{0}, 1, 0, sum, soon), WaitResult::TimedOut);
      // The last bucket comes although the first one is still missing.
      EXPECT_EQ(fabric.finish_sum(StageId{0}, 1, 1, sum, wait), WaitResult::Ready);
      EXPECT_EQ(sum.sums.at(0)[0].item<float>(), 2.0F);
      EXPECT_GT(sum.complete_ns, 0);
      taken = true;
    } else {
      while (!taken) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      fabric.start_sum(StageId{0}, 0, 0, part(fabric, 0, 0));
      EXPECT_EQ(fabric.finish_sum(StageId{0}, 0, 1, sum, wait), WaitResult::Ready);
    }
    EXPECT_EQ(fabric.finish_sum(StageId{0}, worker.value, 0, sum, wait), WaitResult::Ready);
  });
  EXPECT_THAT(failures, Each(""));
}

/// Waits until senders have counted all that has come: they do so behind the system call.
void wait_for_counts(const std::vector<std::unique_ptr<World>>& worlds) {
  const auto missing = [&] {
    int64_t bytes = 0;
    for (const auto& world : worlds)
      bytes += world->wire().received_bytes - world->wire().sent_bytes;
    return bytes;
  };
  for (int i = 0; i < 5000 && missing() != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(missing(), 0);
}

/// Bytes of tensors from and to each rank, against the formulas of plan/gradient_sync.h.
class StageSumBytes : public ::testing::TestWithParam<Way> {};
TEST_P(StageSumBytes, AreThoseOfTheFormulas) {
  constexpr int64_t kNumbers = 2'400'000;
  const StageWeights weights{.shapes = {{kNumbers}, {kNumbers / 4}}, .layer_ends = {1, 2}};
  const double model = 1.25 * kNumbers * static_cast<double>(bytes_of(GetParam().precision));
  for (const int replicas : {2, 4}) {
    for (const int servers : {0, 2, 4}) {
      const schedule::Schedule schedule = data_parallel(replicas, replicas);
      RunSetup setup{.schedule = schedule,
                     .weights = {weights},
                     .sync = GetParam().sync,
                     .gradient_precision = GetParam().precision};
      setup.mini_batch_samples = [&](MiniBatchId) { return replicas; };
      std::vector<int> rank_of_worker;
      for (int w = 0; w < replicas; ++w) rank_of_worker.push_back(w);
      const auto worlds = make_mesh_ranks(rank_of_worker, {}, servers);
      run(worlds, setup, [&](Fabric& fabric, WorkerId worker) {
        Wait wait = wait_for(std::chrono::seconds(20));
        model::Tensors sums;
        const Partials partials{{worker.value, {at::ones({kNumbers}), at::ones({kNumbers / 4})}}};
        EXPECT_EQ(sum_all(fabric, StageId{0}, worker.value, partials, sums, wait),
                  WaitResult::Ready);
      });
      wait_for_counts(worlds);
      const plan::SumShares shares = plan::sum_shares(GetParam().sync, replicas, servers);
      const double own = shares.replica;
      const double of_replica = (1 - own) + (replicas - 1) * own;
      for (size_t r = 0; r < worlds.size(); ++r) {
        const bool is_server = r >= static_cast<size_t>(replicas);
        const double expected = model * (is_server ? replicas * shares.server : of_replica);
        const WireStats wire = worlds[r]->wire();
        // Heads of some hundred bytes.
        EXPECT_NEAR(static_cast<double>(wire.sent_bytes), expected, 0.001 * model) << r;
        EXPECT_NEAR(static_cast<double>(wire.received_bytes), expected, 0.001 * model) << r;
      }
    }
  }
}

/// Two ranks per machine, two replicas per rank: what leaves a machine does not depend on that.
TEST(HierarchicalSumBytes, BytesBetweenMachinesAreThoseOfMachines) {
  constexpr int64_t kNumbers = 2'400'000;
  const StageWeights weights{.shapes = {{kNumbers}}, .layer_ends = {1}};
  const double model = kNumbers * 4.0;
  constexpr int kReplicas = 8;
  const schedule::Schedule schedule = data_parallel(kReplicas, kReplicas);
  RunSetup setup{.schedule = schedule, .weights = {weights}, .sync = GradientSync::Hierarchical};
  setup.mini_batch_samples = [](MiniBatchId) { return kReplicas; };
  // Memory of the same host carries what stays inside a machine in this test, too, so count all:
  // of M, half goes to the other rank of the machine and back.
  for (const int servers : {0, 2}) {
    std::vector<int> hosts{0, 0, 1, 1};
    for (int k = 0; k < servers; ++k) hosts.push_back(2 + k);
    const auto worlds = make_mesh_ranks({0, 0, 1, 1, 2, 2, 3, 3}, {}, servers, hosts);
    run(worlds, setup, [&](Fabric& fabric, WorkerId worker) {
      Wait wait = wait_for(std::chrono::seconds(20));
      model::Tensors sums;
      EXPECT_EQ(sum_all(fabric, StageId{0}, worker.value, {{worker.value, {at::ones({kNumbers})}}},
                        sums, wait),
                WaitResult::Ready);
    });
    wait_for_counts(worlds);
    const plan::SumShares shares = plan::sum_shares(GradientSync::Hierarchical, 2, servers);
    // Two replicas send their halves to the rank beside them, which sends back two halves of sums.
    const double inside = 2 * model / 2 + 2 * model / 2;
    // A machine's two ranks send it together.
    const double between = ((1 - shares.replica) + shares.replica) * model / 2;
    for (size_t r = 0; r < worlds.size(); ++r) {
      const double expected = r < 4 ? inside + between : 2 * shares.server * model;
      EXPECT_NEAR(static_cast<double>(worlds[r]->wire().sent_bytes), expected, 0.06 * model) << r;
    }
  }
}

TEST_P(StageSumTest, AFailureEndsServersToo) {
  const schedule::Schedule schedule = data_parallel(2, 2);
  RunSetup setup{.schedule = schedule,
                 .weights = {kWeights},
                 .sync = GetParam().sync,
                 .gradient_precision = GetParam().precision};
  setup.mini_batch_samples = [](MiniBatchId) { return 2; };
  const auto worlds = make_mesh_ranks({0, 1}, {}, 2);
  const auto failures = run(worlds, setup, [&](Fabric& fabric, WorkerId worker) {
    if (worker.value == 0) {
      fabric.fail(std::make_exception_ptr(RuntimeError("worker 0 has had enough")));
      return;
    }
    Wait wait = wait_for(std::chrono::seconds(20));
    model::Tensors sums;
    EXPECT_EQ(sum_all(fabric, StageId{0}, 1, partials_of(1, 2, 2, 0), sums, wait),
              WaitResult::Closed);
  });
  EXPECT_THAT(failures, Each(::testing::HasSubstr("worker 0 has had enough")));
}

// A server has no worker itself.
TEST(MeshServers, OneThatHasLostAllWorkersSaysThatNoneCanBeReached) {
  const schedule::Schedule schedule = data_parallel(2, 2);
  RunSetup setup{.schedule = schedule, .weights = {kWeights}, .sync = GradientSync::Summation};
  setup.mini_batch_samples = [](MiniBatchId) { return 2; };
  auto worlds = make_mesh_ranks({0, 1}, {}, 1);
  std::string of_server;
  std::vector<std::jthread> ranks;
  for (size_t r = 0; r < worlds.size(); ++r) {
    ranks.emplace_back([&, r] {
      Wait wait = wait_for(std::chrono::seconds(20));
      std::unique_ptr<Fabric> fabric = worlds[r]->open(setup, wait);
      if (!worlds[r]->site().own_workers().empty()) {
        fabric.reset();
        worlds[r].reset();
        return;
      }
      try {
        fabric->finish(wait);
      } catch (const TransportError& error) {
        of_server = error.what();
      }
    });
  }
  ranks.clear();
  EXPECT_THAT(of_server, ::testing::EndsWith("; the workers that can be reached are: none"));
}

std::string way_name(const ::testing::TestParamInfo<Way>& info) {
  std::string name =
      fmt::format("{}_{}", plan::to_string(info.param.sync), to_string(info.param.precision));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<Way> ways(bool with_asynchronous) {
  std::vector<Way> ways;
  for (const GradientSync sync : plan::kGradientSyncs) {
    const bool is_asynchronous = sync == GradientSync::Asynchronous;
    if (is_asynchronous && !with_asynchronous) continue;
    for (const FloatType precision : plan::kSyncPrecisions) {
      if (!is_asynchronous || !is_short(precision)) ways.push_back({sync, precision});
    }
  }
  return ways;
}

/// Asynchronous sums are others (delayed_sum_test.cpp).
INSTANTIATE_TEST_SUITE_P(Methods, StageSumTest, ::testing::ValuesIn(ways(false)), way_name);
INSTANTIATE_TEST_SUITE_P(Types, HierarchicalSumTest, ::testing::ValuesIn(plan::kSyncPrecisions));
INSTANTIATE_TEST_SUITE_P(Methods, StageSumBytes, ::testing::ValuesIn(ways(true)), way_name);

}  // namespace
}  // namespace penstock::runtime::testing
