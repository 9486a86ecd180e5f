// The sums in the memory of (emulated) GPUs against those in the host's memory, bit for bit.
#include "penstock/runtime/device/device_sum.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "penstock/runtime/device/testing_stream_checker.h"
#include "penstock/runtime/fabric/local/shared_reduce.h"

namespace penstock::runtime::testing {
namespace {

const std::vector<model::Shape> kShapes{{3, 5}, {7}, {1}, {4, 4}, {2}, {33}};
constexpr size_t kUnused = 2;  ///< the weight that never has a gradient
constexpr size_t kRare = 4;    ///< the one that has a gradient in some groups only

at::Device gpu(int index) { return {at::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

/// The gradients of a group, among them 0 and -0, and numbers that 16 bits round.
Partials partials_of(int replica, int replicas, int64_t micro_batches, int64_t groups,
                     int64_t round) {
  Partials partials;
  for (int64_t g = replica; g < std::min(micro_batches, groups); g += replicas) {
    model::Tensors sums;
    for (size_t w = 0; w < kShapes.size(); ++w) {
      const bool has = w != kUnused && (w != kRare || g == 1);
      at::Tensor gradient = at::arange(at::empty(kShapes[w]).numel(), at::kFloat)
                                .mul(0.37 + static_cast<double>(g * 7 + round))
                                .sub(static_cast<double>(w))
                                .sin()
                                .view(kShapes[w]);
      gradient.view(-1)[0] = -0.0;
      sums.push_back(has ? gradient : at::Tensor());
    }
    partials.push_back({g, std::move(sums)});
  }
  return partials;
}

/// Runs a call for each replica, in a thread each.
void on_replicas(int replicas, const std::function<void(int)>& call) {
  std::vector<std::jthread> threads;
  for (int r = 0; r < replicas; ++r) threads.emplace_back([&call, r] { call(r); });
}

struct SumCase {
  std::vector<at::Device> devices;
  int64_t accumulate = 4;
  int64_t groups = 4;
  FloatType precision = FloatType::Float32;
  int64_t piece_bytes = 64;
  std::vector<int64_t> micro_batches = {4, 4, 4};  ///< of each round
};

/// By round and weight; the same on every replica.
using Rounds = std::vector<model::Tensors>;

Rounds sums_on_host(const SumCase& setup) {
  const auto replicas = static_cast<int>(setup.devices.size());
  SharedReduce reduce(replicas, kShapes.size(), setup.precision);
  Rounds rounds(setup.micro_batches.size());
  on_replicas(replicas, [&](int r) {
    for (size_t round = 0; round < rounds.size(); ++round) {
      reduce.start(r, partials_of(r, replicas, setup.micro_batches[round], setup.groups,
                                  static_cast<int64_t>(round)));
      model::Tensors sums;
      Wait wait = wait_for(std::chrono::seconds(60));
      EXPECT_EQ(reduce.finish(r, sums, wait), WaitResult::Ready);
      if (r == 0) rounds[round] = std::move(sums);
    }
  });
  return rounds;
}

/// The replicas of one stage in this process.
class Stage {
 public:
  explicit Stage(const SumCase& setup)
      : setup_(setup),
        replicas_(static_cast<int>(setup.devices.size())),
        gpus_(2),
        meeting_(replicas_) {
    std::vector<WorkerId> workers;
    std::vector<WorkerDevice*> devices;
    for (int r = 0; r < replicas_; ++r) {
      workers.push_back(WorkerId{r});
      devices_.push_back(
          std::make_unique<WorkerDevice>(gpus_, setup.devices[static_cast<size_t>(r)]));
      devices.push_back(devices_.back().get());
    }
    exchange_ = std::make_unique<ReplicaExchange>(StageId{0}, workers, devices, nullptr, true);
  }

  /// `call(replica, sum)`: in a thread for each, on its device.
  void run(const std::function<void(int, DeviceSum&)>& call) {
    on_replicas(replicas_, [&](int r) {
      WorkerDevice& device = *devices_[static_cast<size_t>(r)];
      const auto scope = device.compute().enter();
      DeviceSum sum(
          *exchange_, device, kShapes,
          {.groups = setup_.groups,
           .accumulate = setup_.accumulate,
           .replica = r,
           .replicas = replicas_,
           .gradient_precision = setup_.precision},
          [this] { meeting_.arrive_and_wait(); }, setup_.piece_bytes);
      call(r, sum);
    });
  }

  at::Tensor added(int replica, const at::Tensor& numbers) {
    {
      const MutexLock lock(mutex_);
      given_[static_cast<size_t>(replica)] = numbers;
    }
    meeting_.arrive_and_wait();
    const auto scope = devices_[static_cast<size_t>(replica)]->enter_host();
    at::Tensor sum;
    {
      const MutexLock lock(mutex_);
      sum = at::stack(given_).sum(0);
    }
    meeting_.arrive_and_wait();
    return sum;
  }
  /// What a replica's thread computes is on its device; a copy of that for the test.
  model::Tensors on_host(int replica, model::Tensors tensors) {
    return devices_[static_cast<size_t>(replica)]->to_host(std::move(tensors));
  }
  model::Tensors on_device(int replica, model::Tensors tensors) {
    return devices_[static_cast<size_t>(replica)]->to_device(std::move(tensors));
  }
  std::vector<std::string> violations() const { return gpus_.violations(); }

 private:
  const SumCase& setup_;
  int replicas_;
  CheckedDevices gpus_;
  std::barrier<> meeting_;
  std::vector<std::unique_ptr<WorkerDevice>> devices_;
  std::unique_ptr<ReplicaExchange> exchange_;
  Mutex mutex_;
  model::Tensors given_ = model::Tensors(static_cast<size_t>(replicas_));
};

std::vector<Rounds> sums_on_gpus(const SumCase& setup) {
  Stage stage(setup);
  const auto replicas = static_cast<int>(setup.devices.size());
  std::vector<Rounds> all(setup.devices.size());
  stage.run([&](int r, DeviceSum& sum) {
    for (size_t round = 0; round < setup.micro_batches.size(); ++round) {
      Partials partials = partials_of(r, replicas, setup.micro_batches[round], setup.groups,
                                      static_cast<int64_t>(round));
      for (GroupGradients& group : partials) group.sums = stage.on_device(r, group.sums);
      const at::Tensor numbers =
          sum.start(MiniBatchId{static_cast<int64_t>(round)}, std::move(partials));
      all[static_cast<size_t>(r)].push_back(stage.on_host(r, sum.finish(stage.added(r, numbers))));
    }
  });
  EXPECT_THAT(stage.violations(), ::testing::IsEmpty());
  return all;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() &&
         a.contiguous().view(-1).view(at::kInt).equal(b.contiguous().view(-1).view(at::kInt));
}

void expect_sums_of_host(const SumCase& setup) {
  const Rounds expected = sums_on_host(setup);
  const std::vector<Rounds> found = sums_on_gpus(setup);
  for (size_t r = 0; r < found.size(); ++r) {
    ASSERT_EQ(found[r].size(), expected.size());
    for (size_t round = 0; round < expected.size(); ++round) {
      for (size_t w = 0; w < kShapes.size(); ++w)
        EXPECT_TRUE(same_bits(found[r][round][w], expected[round][w])) << r << round << w;
    }
  }
  EXPECT_FALSE(expected.front()[kUnused].defined());
}

TEST(DeviceSum, HasTheBitsOfTheHostsSums) {
  for (const FloatType precision : {FloatType::Float32, FloatType::BFloat16, FloatType::Float16}) {
    for (const int64_t piece_bytes : {int64_t{4}, int64_t{64}, int64_t{1} << 20}) {
      expect_sums_of_host(
          {.devices = {gpu(0), gpu(1)}, .precision = precision, .piece_bytes = piece_bytes});
    }
  }
}

TEST(DeviceSum, SeveralReplicasMayShareAGpu) {
  expect_sums_of_host({.devices = {gpu(0), gpu(0)}});
  expect_sums_of_host({.devices = {gpu(0), gpu(1), gpu(0), gpu(1)},
                       .accumulate = 8,
                       .groups = 8,
                       .micro_batches = {8, 8}});
}

TEST(DeviceSum, AReplicaMayHaveNoMicroBatch) {
  expect_sums_of_host({.devices = {gpu(0), gpu(1), gpu(0)},
                       .accumulate = 3,
                       .groups = 3,
                       .micro_batches = {3, 2, 1}});
  // More replicas than a small piece has parts of 16 bytes.
  expect_sums_of_host({.devices = std::vector<at::Device>(6, gpu(0)),
                       .accumulate = 6,
                       .groups = 6,
                       .piece_bytes = 4,
                       .micro_batches = {6, 5}});
}

TEST(DeviceSum, SharesOfWeightsComeToAllReplicas) {
  const SumCase setup{.devices = {gpu(0), gpu(1), gpu(1)}};
  Stage stage(setup);
  std::vector<size_t> ends;
  for (size_t w = 0; w < kShapes.size(); ++w) ends.push_back(w + 1);
  const std::vector<WeightShare> shares = weight_shares(kShapes, ends, 3);
  stage.run([&](int r, DeviceSum& sum) {
    for (int round = 0; round < 2; ++round) {
      model::Tensors weights;
      for (size_t w = 0; w < kShapes.size(); ++w) {
        at::Tensor weight = at::full(kShapes[w], -1.0);
        const WeightRange& own = shares[static_cast<size_t>(r)][w];
        weight.view(-1).narrow(0, own.begin, own.length).fill_(100.0 * round + r);
        weights.push_back(weight);
      }
      weights = stage.on_device(r, std::move(weights));
      sum.gather(weights, shares);
      weights = stage.on_host(r, std::move(weights));
      for (size_t q = 0; q < shares.size(); ++q) {
        for (size_t w = 0; w < kShapes.size(); ++w) {
          const WeightRange& range = shares[q][w];
          EXPECT_TRUE(weights[w]
                          .view(-1)
                          .narrow(0, range.begin, range.length)
                          .eq(100.0 * round + static_cast<double>(q))
                          .all()
                          .item<bool>());
        }
      }
    }
  });
  EXPECT_THAT(stage.violations(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace penstock::runtime::testing
