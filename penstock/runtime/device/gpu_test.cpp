// What only a GPU can show; skipped where there is none.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "penstock/model/layers/linear_product.h"
#include "penstock/model/profiler.h"
#include "penstock/model/zoo.h"
#include "penstock/runtime/device/host_stash.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/fabric/nccl/nccl_links.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;

const at::Device kCpu = at::kCPU;
const at::Device kFirst(at::kCUDA, 0);
const at::Device kSecond(at::kCUDA, 1);
/// Sums of a GPU are taken in another order.
constexpr double kGpuTolerance = 1e-3;
constexpr int64_t kSamples = int64_t{12} * 20;

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (model::installed_devices().count() == 0)
      GTEST_SKIP() << model::installed_devices().obstacle();
  }
};

Case two_stages() {
  return {.kind = Strategy::OneFOneBFlush, .replicas = {1, 1}, .parts = 4, .samples = kSamples};
}

Trained train_on(std::vector<at::Device> device_of_worker, Case setup) {
  setup.device_of_worker = std::move(device_of_worker);
  return train(skip_model(), setup);
}

void expect_near(const Trained& a, const Trained& b) {
  EXPECT_LT(loss_difference(a.losses, b.losses), kGpuTolerance);
  EXPECT_LT(weight_difference(a.layers, b.layers), kGpuTolerance);
}

TEST_F(Gpu, TensorsGoToTheDeviceAndBack) {
  WorkerDevice device(model::installed_devices(), kFirst);
  WorkerDevice host(model::installed_devices(), kCpu);
  const auto scope = device.compute().enter();
  const at::Tensor batch = at::arange(1 << 20, at::kFloat);
  const at::Tensor there = device.to_device(batch);
  EXPECT_EQ(there.device(), kFirst);
  EXPECT_TRUE(at::equal(device.to_host({there * 2}).front(), batch * 2));
  EXPECT_TRUE(at::equal(host.take(device.give({there + 1}, /*to_host=*/true)).front(), batch + 1));
}

TEST_F(Gpu, AnEventKnowsWhenItsWorkIsDoneAndHowLongItTook) {
  const auto stream = model::installed_devices().stream(kFirst);
  const auto scope = stream->enter();
  const at::Tensor a = at::rand({2048, 2048}, at::TensorOptions().device(kFirst));
  const model::EventPtr begin = stream->record(/*timed=*/true);
  at::Tensor product = a;
  for (int i = 0; i < 50; ++i) product = at::matmul(product, a);
  const model::EventPtr end = stream->record(/*timed=*/true);
  end->wait_on_host();
  EXPECT_TRUE(end->is_done());
  EXPECT_GT(end->ns_since(*begin), 100'000);
}

TEST_F(Gpu, TheAllocatorCountsWhatTensorsTake) {
  model::Devices& devices = model::installed_devices();
  const int64_t before = devices.memory(kFirst).allocated;
  devices.reset_peak(kFirst);
  const at::Tensor tensor = at::empty({1 << 20}, at::TensorOptions().device(kFirst));
  EXPECT_GE(devices.memory(kFirst).allocated - before, int64_t{4} << 20);
  EXPECT_GE(devices.memory(kFirst).peak, devices.memory(kFirst).allocated);
  EXPECT_GT(devices.memory(kFirst).total, devices.memory(kFirst).allocated);
}

TEST_F(Gpu, FullMemoryIsRecognised) {
  try {
    at::empty({int64_t{1} << 50}, at::TensorOptions().device(kFirst));
    FAIL() << "a petabyte was allocated";
  } catch (const std::exception& error) {
    EXPECT_TRUE(model::is_out_of_memory(error)) << error.what();
  }
}

TEST_F(Gpu, TrainsAsTheCpuDoes) {
  const Case serial{.samples = kSamples};
  expect_near(train_on({kFirst}, serial), train_on({kCpu}, serial));
  expect_near(train_on({kFirst, kCpu}, two_stages()), train_on({kCpu, kCpu}, two_stages()));
  Case adam = two_stages();
  adam.optimizer = gentle_adam();
  adam.learning_rate = 0.01;
  adam.norm = true;
  adam.max_grad_norm = 1;
  expect_near(train_on({kFirst, kFirst}, adam), train_on({kCpu, kCpu}, adam));
}

TEST_F(Gpu, TwoWorkersOfACardHaveTheBitsOfOne) {
  const Case two = two_stages();
  Case one = two;
  one.kind = Strategy::Serial;
  one.replicas = {1};
  expect_same_bits(train_on({kFirst, kFirst}, two), train_on({kFirst}, one));
}

TEST_F(Gpu, ActivationsThatMoveToTheHostHaveTheSameBits) {
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush}) {
    Case setup{.kind = kind, .replicas = {1, 1, 1, 1}, .parts = 6, .samples = kSamples};
    const std::vector<at::Device> devices(4, kFirst);
    const Trained without = train_on(devices, setup);
    setup.offload = {true, true, true, true};
    expect_same_bits(without, train_on(devices, setup));
  }
}

TEST_F(Gpu, WhatMovesToTheHostLeavesTheCard) {
  constexpr int64_t kSize = 2048;
  constexpr int64_t kMatrix = kSize * kSize * int64_t{sizeof(float)};
  model::Devices& devices = model::installed_devices();
  WorkerDevice device(devices, kFirst);
  const auto scope = device.compute().enter();
  const auto options = at::TensorOptions().device(kFirst);
  const at::Tensor input = at::rand({kSize, kSize}, options);
  const at::Tensor weight = (at::rand({kSize, kSize}, options) / kSize).set_requires_grad(true);
  const auto forward = [&] {
    return at::exp(at::mm(at::relu(at::mm(input, weight)), weight)).sum();
  };
  const auto gradient = [&](const at::Tensor& output) {
    return torch::autograd::grad({output}, {weight})[0];
  };
  const at::Tensor expected = gradient(forward());

  std::vector<WeakStorage> made;
  at::Tensor output;
  {
    StashWatch watch;
    output = forward();
    made = watch.made();
  }
  StorageSet stays;
  add_storages(stays, model::Tensors{output});
  const int64_t before = devices.memory(kFirst).allocated;
  HostStash stash(device, made, stays);
  EXPECT_GE(stash.bytes(), 2 * kMatrix);
  stash.drop();
  EXPECT_LE(devices.memory(kFirst).allocated, before - 2 * kMatrix);
  stash.load();
  stash.wait();
  EXPECT_EQ(devices.memory(kFirst).allocated, before);
  EXPECT_TRUE(at::equal(gradient(output), expected));
}

Trained train_by_graphs(std::vector<at::Device> device_of_worker, Case setup,
                        const model::Model& model) {
  setup.device_of_worker = std::move(device_of_worker);
  setup.device_graphs = true;
  return train(model, setup);
}

TEST_F(Gpu, GraphsHaveTheBitsOfTheirPasses) {
  const Case one{.parts = 3, .samples = kSamples};
  for (const Case& setup : {one, two_stages()}) {
    const std::vector<at::Device> devices(setup.replicas.size(), kFirst);
    const Trained trained = train_by_graphs(devices, setup, skip_model());
    EXPECT_THAT(trained.graph_obstacles, ::testing::IsEmpty());
    expect_same_bits(train_on(devices, setup), trained);
  }
}

TEST_F(Gpu, GraphsChangeTheReplicasBuffers) {
  Case setup{.parts = 2, .samples = kSamples, .sample = {2, 2, 2}};
  const Trained by_graphs = train_by_graphs({kFirst}, setup, model_with_norms());
  EXPECT_THAT(by_graphs.graph_obstacles, ::testing::IsEmpty());
  setup.device_of_worker = {kFirst};
  const Trained without = train(model_with_norms(), setup);
  // cuDNN may add in another order each time.
  expect_near(by_graphs, without);
  for (size_t l = 0; l < without.layers.size(); ++l) {
    for (size_t b = 0; b < without.layers[l].buffers.size(); ++b) {
      const at::Tensor difference = by_graphs.layers[l].buffers[b] - without.layers[l].buffers[b];
      EXPECT_LT(difference.abs().max().item<double>(), kGpuTolerance);
    }
  }
}

TEST_F(Gpu, AProfileByGraphsIsOfTheSameWorkWithoutLaunches) {
  const model::Model model = model::make_model({.name = "mlp"});
  std::string obstacle;
  model::ProfilerOptions options{.batch_size = 8,
                                 .warmup = 4,
                                 .samples = 20,
                                 .device = "cuda:0",
                                 .on_no_graphs = [&](const std::string& why) { obstacle = why; }};
  const profile::Profile eager = model::measure_profile(model, options);
  options.device_graphs = true;
  const profile::Profile graphs = model::measure_profile(model, options);
  EXPECT_EQ(obstacle, "");
  EXPECT_FALSE(eager.device_graphs);
  EXPECT_TRUE(graphs.device_graphs);
  for (size_t l = 0; l < graphs.costs.size(); ++l) {
    if (graphs.costs[l].weight_bytes == 0) continue;
    EXPECT_GT(graphs.costs[l].forward_ns, 0) << l;
    EXPECT_GT(graphs.costs[l].backward_ns, 0) << l;
    EXPECT_EQ(graphs.costs[l].output_bytes, eager.costs[l].output_bytes) << l;
  }
  EXPECT_LT(profile::total_compute_ns(graphs), profile::total_compute_ns(eager));
  // In the card's memory.
  EXPECT_GT(eager.copy_bandwidth_bytes_per_s, 10'000'000'000);

  model::ModelBuilder net("dropped");
  const model::Value x = net.linear(net.input({8}), {.features = 4});
  const model::Model dropped = net.build(net.dropout(x, 0.5));
  EXPECT_FALSE(model::measure_profile(dropped, options).device_graphs);
  EXPECT_THAT(obstacle, ::testing::HasSubstr("takes random numbers"));
}

TEST_F(Gpu, WhatNeedsRandomNumbersGoesWithoutGraphs) {
  const Trained trained = train_by_graphs({kFirst}, {.samples = kSamples}, skip_model(0.1));
  EXPECT_THAT(trained.graph_obstacles, ::testing::ElementsAre(::testing::HasSubstr("random")));
}

TEST_F(Gpu, TensorsOutliveTheStreamsThatUsedThem) {
  at::Tensor there;
  at::Tensor here;
  {
    WorkerDevice device(model::installed_devices(), kFirst);
    const auto scope = device.compute().enter();
    there = device.to_device(at::ones({1 << 20}));
    here = device.to_host({there}).front();
  }
  there.reset();
  here.reset();
  // Their memory is given to others, once what used it is done.
  WorkerDevice device(model::installed_devices(), kFirst);
  const auto scope = device.compute().enter();
  const at::Tensor again = device.to_device(at::full({1 << 20}, 2.0));
  EXPECT_TRUE(device.to_host({again}).front().eq(2).all().item<bool>());
}

/// The first layer's weight is that of the last one but one.
model::Model tied_model() {
  model::ModelBuilder net("tied");
  model::Value x = net.input({8});
  x = net.tanh(net.linear(x, {.features = 16, .name = "encode"}));
  x = net.tanh(net.linear(x, {.features = 16, .name = "middle"}));
  x = net.tanh(net.linear(x, {.features = 8, .name = "decode", .transposed = true}));
  net.tie("decode", "weight", "encode", "weight");
  return net.build(net.linear(x, {.features = 4, .name = "head"}));
}

TEST_F(Gpu, ReplicasShareOutTheOptimisersState) {
  Case whole{.kind = Strategy::DataParallel,
             .replicas = {2},
             .parts = 2,
             .samples = kSamples,
             .optimizer = gentle_adam(),
             .learning_rate = 0.01,
             .device_of_worker = {kFirst, kFirst}};
  Case shared = whole;
  shared.shard_optimizer = {true};
  expect_same_bits(train(skip_model(), shared), train(skip_model(), whole));
}

TEST_F(Gpu, PoliciesWithOneVersionHaveGraphs) {
  for (const auto policy : {schedule::WeightPolicy::Latest, schedule::WeightPolicy::Current}) {
    Case setup{.kind = Strategy::Online,
               .replicas = {1, 1, 1},
               .policy = policy,
               .samples = kSamples,
               .device_of_worker = {kFirst, kFirst, kFirst}};
    const Trained without = train(skip_model(), setup);
    setup.device_graphs = true;
    const Trained by_graphs = train(skip_model(), setup);
    EXPECT_THAT(by_graphs.graph_obstacles, ::testing::IsEmpty());
    expect_near(without, by_graphs);
  }
}

TEST_F(Gpu, StagesOfACardAddTiedGradientsThere) {
  Case two = two_stages();
  two.norm = true;
  Case one = two;
  one.kind = Strategy::Serial;
  one.replicas = {1};
  two.device_of_worker = {kFirst, kFirst};
  one.device_of_worker = {kFirst};
  const Trained piped = train(tied_model(), two);
  expect_near(piped, train(tied_model(), one));
  two.device_of_worker = {};
  expect_near(piped, train(tied_model(), two));
}

TEST_F(Gpu, LargeProductsWithAnOddNumberOfFeaturesArePadded) {
  const at::Tensor input = at::randn({4, 512, 64}, at::TensorOptions(kFirst));
  const at::Tensor weight = at::randn({50257, 64}, input.options());
  const auto product = [&](at::ScalarType type) {
    return model::linear(input.to(type), weight.to(type), at::Tensor());
  };
  EXPECT_EQ(product(at::kFloat).stride(1), 50257);
  const at::Tensor padded = product(at::kBFloat16);
  EXPECT_EQ(padded.stride(1), 50264);
  const at::Tensor exact = at::linear(input.to(at::kBFloat16), weight.to(at::kBFloat16));
  EXPECT_LT((padded - exact).abs().max().item<double>(), 0.5);  // of 50 at most, in 8 bits
  EXPECT_EQ(model::linear(input.narrow(0, 0, 1).to(at::kBFloat16), weight.to(at::kBFloat16), {})
                .stride(1),
            50257);
}

TEST_F(Gpu, TheTimelineIsThatOfTheDevice) {
  const Trained trained = train_on({kFirst, kFirst}, two_stages());
  for (const auto& events : trained.run.timeline.workers) {
    ASSERT_FALSE(events.empty());
    for (size_t e = 1; e < events.size(); ++e) {
      EXPECT_LE(events[e - 1].start_ns, events[e].start_ns);
      EXPECT_LE(events[e].start_ns, events[e].end_ns);
    }
  }
}

/// Replicas with the whole state of the optimiser, with shares of it, and gradients in 16 bits.
std::vector<Case> replicated() {
  const Case replicas{.kind = Strategy::DataParallel,
                      .replicas = {2},
                      .parts = 2,
                      .samples = kSamples,
                      .optimizer = gentle_adam(),
                      .learning_rate = 0.01};
  Case shared = replicas;
  shared.shard_optimizer = {true};
  Case rounded = replicas;
  rounded.gradient_precision = FloatType::BFloat16;
  return {replicas, shared, rounded};
}

TEST_F(Gpu, ReplicasOfACardAddTheirGradientsThere) {
  for (const Case& setup : replicated())
    expect_near(train_on({kFirst, kFirst}, setup), train_on({kCpu, kCpu}, setup));
  const Case hybrid{.kind = Strategy::OneFOneBFlush,
                    .replicas = {2, 1},
                    .parts = 4,
                    .samples = kSamples,
                    .norm = true,
                    .max_grad_norm = 0.05};
  expect_near(train_on({kFirst, kFirst, kFirst}, hybrid), train_on({kCpu, kCpu, kCpu}, hybrid));
}

TEST_F(Gpu, ReplicasOnTwoCardsHaveTheBitsOfOne) {
  if (model::installed_devices().count() < 2) GTEST_SKIP() << "there is one GPU";
  for (const Case& setup : replicated())
    expect_same_bits(train_on({kFirst, kSecond}, setup), train_on({kFirst, kFirst}, setup));
}

TEST_F(Gpu, StagesOnTwoCardsHaveTheBitsOfOne) {
  if (model::installed_devices().count() < 2) GTEST_SKIP() << "there is one GPU";
  expect_same_bits(train_on({kFirst, kSecond}, two_stages()),
                   train_on({kFirst, kFirst}, two_stages()));
}

TEST_F(Gpu, RanksHandTensorsOverByNccl) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  if (model::installed_devices().count() < 2) GTEST_SKIP() << "NCCL takes a GPU for each rank";
  const RankRig rig{"nccl", [](const std::vector<int>& ranks) {
                      return make_nccl_ranks(ranks, {kFirst, kSecond});
                    }};
  std::vector<Case> cases = replicated();
  cases.push_back(two_stages());
  for (const Case& setup : cases) {
    const Trained expected = train_on({kFirst, kSecond}, setup);
    std::vector<Trained> parts(2);
    const auto failures = on_ranks(rig, {0, 1}, [&](World& world, size_t rank) {
      parts[rank] = train(skip_model(), setup, &world);
    });
    EXPECT_THAT(failures, ::testing::Each(""));
    for (size_t l = 0; l < expected.layers.size(); ++l) {
      const size_t holder = parts[0].layers[l].here ? 0 : 1;
      for (size_t w = 0; w < expected.layers[l].weights.size(); ++w)
        EXPECT_TRUE(parts[holder].layers[l].weights[w].equal(expected.layers[l].weights[w])) << l;
    }
  }
}

}  // namespace
}  // namespace penstock::runtime::testing
