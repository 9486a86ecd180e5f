// The runtime's parts on their own: weight store, gradient buffer, exchange, shared reduction, stage module.
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/gradient_order.h"
#include "penstock/runtime/ordered_sum.h"
#include "penstock/runtime/shared_reduce.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/tensor_exchange.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/weight_store.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

CondVar::Deadline soon(int ms = 5000) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); }

class WeightStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<model::Optimizer> sgd_ = model::make_optimizer({.name = "sgd", .momentum = 0});
  model::Tensors gradient_ = {at::ones({4})};
  float first(const WeightStore& store, int64_t version) { return store.at(WeightVersion{version})[0][0].item<float>(); }
};

TEST_F(WeightStoreTest, AStepKeepsVersionsThatAreStillNeeded) {
  WeightStore store({at::ones({4})}, *sgd_);
  store.step(gradient_, {.learning_rate = 0.25});
  store.step(gradient_, {.learning_rate = 0.25});
  EXPECT_EQ(store.num_versions(), 3);
  EXPECT_EQ(first(store, 0), 1.0f);
  EXPECT_EQ(first(store, 1), 0.75f);
  EXPECT_EQ(first(store, 2), 0.5f);
}

TEST_F(WeightStoreTest, AReleasedLatestVersionIsUpdatedInPlace) {
  WeightStore store({at::ones({4})}, *sgd_);
  const void* before = store.at(WeightVersion{0})[0].data_ptr();
  store.release(WeightVersion{0});
  store.step(gradient_, {.learning_rate = 0.5});
  EXPECT_EQ(store.at(WeightVersion{1})[0].data_ptr(), before);
  EXPECT_EQ(store.num_versions(), 1);
  EXPECT_EQ(first(store, 1), 0.5f);
}

TEST_F(WeightStoreTest, MemoryOfDeadVersionsIsUsedAgain) {
  WeightStore store({at::ones({4})}, *sgd_);
  const void* oldest = store.at(WeightVersion{0})[0].data_ptr();
  store.step(gradient_, {.learning_rate = 0.5});
  store.release(WeightVersion{0});
  const int64_t bytes = store.bytes();
  store.step(gradient_, {.learning_rate = 0.5});
  EXPECT_EQ(store.at(WeightVersion{2})[0].data_ptr(), oldest);
  EXPECT_EQ(store.bytes(), bytes);
}

TEST_F(WeightStoreTest, MemoryThatSomebodyStillHoldsIsNotUsedAgain) {
  WeightStore store({at::ones({4})}, *sgd_);
  const at::Tensor held = store.at(WeightVersion{0})[0].detach();
  store.step(gradient_, {.learning_rate = 0.5});
  store.release(WeightVersion{0});
  store.step(gradient_, {.learning_rate = 0.5});
  EXPECT_EQ(held[0].item<float>(), 1.0f);
}

TEST_F(WeightStoreTest, AWeightSharedWithAnOlderVersionIsNotOverwritten) {
  WeightStore store({at::ones({4})}, *sgd_);
  store.step(model::Tensors(1), {.learning_rate = 0.5});
  store.release(WeightVersion{1});
  store.step(gradient_, {.learning_rate = 0.5});
  EXPECT_EQ(first(store, 0), 1.0f);
  EXPECT_EQ(first(store, 2), 0.5f);
}

TEST_F(WeightStoreTest, UnknownAndReleasedVersionsAreInternalErrors) {
  WeightStore store({at::ones({4})}, *sgd_);
  EXPECT_THROW(store.at(WeightVersion{1}), InternalError);
  store.step(gradient_, {.learning_rate = 0.5});
  store.release(WeightVersion{0});
  EXPECT_THROW(store.at(WeightVersion{0}), InternalError);
  EXPECT_THROW(store.release(WeightVersion{0}), InternalError);
}

TEST_F(WeightStoreTest, AnUndefinedGradientLeavesTheWeight) {
  WeightStore store({at::ones({4})}, *sgd_);
  const model::Tensors none(1);
  store.step(none, {.learning_rate = 0.5});
  EXPECT_EQ(first(store, 1), 1.0f);
  store.release(WeightVersion{0});
  EXPECT_EQ(first(store, 1), 1.0f);
}

TEST(GradientBufferTest, SumsAndLeavesSharedTensorsAlone) {
  GradientBuffer buffer(2, 1, 3);
  const at::Tensor shared = at::ones({3});
  buffer.add(MicroBatchId{0}, {shared, at::Tensor()});
  buffer.add(MicroBatchId{1}, {at::ones({3}), at::Tensor()});
  buffer.add(MicroBatchId{2}, {at::ones({3}), at::Tensor()});
  Partials partials = buffer.take(MiniBatchId{0});
  ASSERT_EQ(partials.size(), 1u);
  EXPECT_EQ(partials[0].sums[0].sum().item<float>(), 9.0f);
  EXPECT_FALSE(partials[0].sums[1].defined());
  EXPECT_EQ(shared.sum().item<float>(), 3.0f);
  buffer.add(MicroBatchId{3}, {shared, shared});
  partials = buffer.take_exclusive(MiniBatchId{1});
  partials[0].sums[0].add_(1);
  EXPECT_EQ(shared.sum().item<float>(), 3.0f);
  EXPECT_TRUE(buffer.take(MiniBatchId{1}).empty());
  EXPECT_FALSE(sum_of({}, 2)[0].defined());
}

TEST(GradientBufferTest, TheGradientOfALinearLayerIsNotCopied) {
  const at::Tensor weight = at::ones({5, 3}).requires_grad_(true);
  const at::Tensor loss = at::linear(at::ones({2, 3}), weight).sum();
  model::Tensors gradients = torch::autograd::grad({loss}, {weight});
  const void* memory = gradients[0].data_ptr();
  GradientBuffer buffer(1, 1, 1);
  buffer.add(MicroBatchId{0}, std::move(gradients));
  EXPECT_EQ(buffer.take_exclusive(MiniBatchId{0})[0].sums[0].data_ptr(), memory);
}

TEST(GradientBufferTest, TheOrderOfArrivalDoesNotMatter) {
  // 1e8 + 1 - 1e8 is 0 or 1, depending on the order.
  const std::vector<float> values = {1e8f, 1.0f, -1e8f, 3.0f, 1e-3f, 1.0f};
  const auto sum = [&](const std::vector<int64_t>& order, int64_t groups) {
    GradientBuffer buffer(1, groups, 6);
    for (const int64_t b : order) buffer.add(MicroBatchId{6 + b}, {at::full({1}, values[static_cast<size_t>(b)])});
    return sum_of(buffer.take(MiniBatchId{1}), 1)[0].item<float>();
  };
  for (const int64_t groups : {1, 2, 4, 100}) {
    SCOPED_TRACE(groups);
    const float expected = sum({0, 1, 2, 3, 4, 5}, groups);
    EXPECT_EQ(sum({5, 4, 3, 2, 1, 0}, groups), expected);
    EXPECT_EQ(sum({2, 0, 5, 1, 4, 3}, groups), expected);
  }
  EXPECT_NE(sum({0, 1, 2, 3, 4, 5}, 1), sum({0, 1, 2, 3, 4, 5}, 2));
}

TEST(GradientBufferTest, AMissingMicroBatchIsAnInternalError) {
  GradientBuffer buffer(1, 1, 3);
  buffer.add(MicroBatchId{1}, {at::ones({1})});
  EXPECT_THROW(buffer.take(MiniBatchId{0}), InternalError);
  GradientBuffer twice(1, 1, 3);
  twice.add(MicroBatchId{0}, {at::ones({1})});
  EXPECT_THROW(twice.add(MicroBatchId{0}, {at::ones({1})}), InternalError);
}

TEST(OrderedSumTest, FoldsFromTheLeftWhateverComesFirst) {
  const std::vector<float> values = {1.0f, 1e8f, -1e8f, 0.5f};
  const auto sum = [&](const std::vector<size_t>& order) {
    OrderedSum sum(values.size());
    for (const size_t position : order) sum.put(position, position == 3 ? at::Tensor() : at::full({2}, values[position]));
    return sum.take()[0].item<float>();
  };
  EXPECT_EQ(sum({0, 1, 2, 3}), sum({3, 2, 1, 0}));
  EXPECT_EQ(sum({0, 1, 2, 3}), sum({2, 3, 0, 1}));
  OrderedSum incomplete(2);
  incomplete.put(1, at::ones({1}));
  EXPECT_THROW(incomplete.take(), InternalError);
}

TEST(GradientOrderTest, StagesAddUpOnlyWhatTheCanonicalSumBeginsWith) {
  const std::vector<StageId> stages = {StageId{0}, StageId{0}, StageId{2}, StageId{1}, StageId{0},
                                       StageId{2}, StageId{2}, StageId{1}, StageId{1}};
  const auto ids = [](std::vector<int> layers) {
    std::vector<LayerId> result;
    for (const int l : layers) result.push_back(LayerId{l});
    return result;
  };
  const StageId home{0};
  using Parts = std::vector<GradientPart>;
  EXPECT_EQ(gradient_parts(ids({3}), stages, home, false), (Parts{{StageId{1}, ids({3})}}));
  EXPECT_EQ(gradient_parts(ids({3, 7, 8}), stages, home, false), (Parts{{StageId{1}, ids({8, 7, 3})}}));
  EXPECT_EQ(gradient_parts(ids({3, 5, 6, 8}), stages, home, false),
            (Parts{{StageId{1}, ids({8})}, {StageId{2}, ids({6})}, {StageId{2}, ids({5})}, {StageId{1}, ids({3})}}));
  EXPECT_EQ(gradient_parts(ids({1, 4, 5, 6}), stages, home, false), (Parts{{StageId{2}, ids({6, 5})}, {home, ids({4})}, {home, ids({1})}}));
  EXPECT_EQ(gradient_parts(ids({5, 6}), stages, home, true), (Parts{{home, {}}, {StageId{2}, ids({6})}, {StageId{2}, ids({5})}}));
  EXPECT_EQ(gradient_parts({}, stages, home, true), (Parts{{home, {}}}));
}

schedule::Schedule two_stage_schedule() {
  return lower(generate(schedule::Kind::OneFOneB,
                        {.replicas = {1, 1}, .micro_batches = 4, .accumulate = 1, .policy = schedule::WeightPolicy::Stash}),
               schedule::chain_links(2));
}

TEST(TensorExchangeTest, MessagesAreFoundByNameNotByOrder) {
  TensorExchange exchange(two_stage_schedule(), 3);
  for (const int b : {0, 1, 2}) {
    EXPECT_EQ(exchange.send(WorkerId{0}, WorkerId{1}, false, {StageId{0}, StageId{1}, MicroBatchId{b}}, {at::full({1}, b)}, soon()),
              WaitResult::Ready);
  }
  model::Tensors tensors;
  for (const int b : {2, 0, 1}) {
    ASSERT_EQ(exchange.receive(WorkerId{0}, WorkerId{1}, false, {StageId{0}, StageId{1}, MicroBatchId{b}}, tensors, soon()),
              WaitResult::Ready);
    EXPECT_EQ(tensors[0].item<float>(), static_cast<float>(b));
  }
}

TEST(TensorExchangeTest, AFullChannelMakesTheSenderWaitAndCloseWakesIt) {
  TensorExchange exchange(two_stage_schedule(), 1);
  const auto send = [&](int b, int ms) {
    return exchange.send(WorkerId{0}, WorkerId{1}, false, {StageId{0}, StageId{1}, MicroBatchId{b}}, {at::ones({1})}, soon(ms));
  };
  EXPECT_EQ(send(0, 1000), WaitResult::Ready);
  EXPECT_EQ(send(1, 20), WaitResult::TimedOut);
  WaitResult blocked = WaitResult::Ready;
  std::thread sender([&]() { blocked = send(1, 20000); });
  exchange.close();
  sender.join();
  EXPECT_EQ(blocked, WaitResult::Closed);
}

TEST(SharedReduceTest, SumsOverReplicasAndTreatsMissingGradientsAsZero) {
  constexpr int kReplicas = 3;
  SharedReduce reduce(kReplicas, 3);
  std::vector<model::Tensors> sums(kReplicas);
  std::vector<std::thread> threads;
  for (int r = 0; r < kReplicas; ++r) {
    threads.emplace_back([&, r]() {
      Partials partials = {{r, {at::full({5}, r + 1), r == 1 ? at::ones({2}) : at::Tensor(), at::Tensor()}}};
      int64_t waiting_ns = 0;
      EXPECT_EQ(reduce.run(r, std::move(partials), sums[static_cast<size_t>(r)], soon(), waiting_ns), WaitResult::Ready);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& sum : sums) {
    EXPECT_EQ(sum[0].sum().item<float>(), 30.0f);
    EXPECT_EQ(sum[1].sum().item<float>(), 2.0f);
    EXPECT_FALSE(sum[2].defined());
  }
}

TEST(SharedReduceTest, ReplicasAddTheirGroupsInTheOrderOfOne) {
  const std::vector<float> values = {1e8f, 1.0f, -1e8f, 3.0f, 1e-3f, 1e8f};
  const auto partials_of = [&](int64_t replica, int64_t replicas) {
    Partials partials;
    for (int64_t g = replica; g < 6; g += replicas) partials.push_back({g, {at::full({7}, values[static_cast<size_t>(g)])}});
    return partials;
  };
  const at::Tensor expected = sum_of(partials_of(0, 1), 1)[0];
  for (const int replicas : {2, 3, 6}) {
    SharedReduce reduce(replicas, 1);
    std::vector<std::thread> threads;
    for (int r = 0; r < replicas; ++r) {
      threads.emplace_back([&, r]() {
        int64_t waiting_ns = 0;
        model::Tensors sums;
        EXPECT_EQ(reduce.run(r, partials_of(r, replicas), sums, soon(), waiting_ns), WaitResult::Ready);
        EXPECT_TRUE(sums.at(0).equal(expected));
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(SharedReduceTest, AMissingReplicaIsATimeout) {
  SharedReduce reduce(2, 1);
  model::Tensors sums;
  int64_t waiting_ns = 0;
  EXPECT_EQ(reduce.run(0, {{0, {at::ones({2})}}}, sums, soon(20), waiting_ns), WaitResult::TimedOut);
  EXPECT_GT(waiting_ns, 0);
}

TEST(StageModuleTest, StagesInARowEqualTheWholeModel) {
  const model::Model model = skip_model();
  const StageModule whole(model, std::vector<StageId>(model.graph().layers().size(), StageId{0}), StageId{0});
  const at::Tensor x = at::linspace(-1, 1, 24).view({3, 8});
  const auto weights_of = [&](const StageModule& stage) {
    model::Tensors weights;
    for (const LayerId id : stage.layers()) {
      for (const at::Tensor& weight : model.initial_weights(id, 5)) weights.push_back(weight);
    }
    return weights;
  };
  model::Tensors buffers;
  const at::Tensor expected = whole.forward(weights_of(whole), buffers, model::Tensors{x}, {.training = false}).front();
  for (const int stages : {2, 3, 5, 9}) {
    const auto stage_of_layer = cut(model, stages);
    std::map<graph::ValueRef, at::Tensor> values = {{graph::ValueRef::model_input(0), x}};
    for (int s = 0; s < stages; ++s) {
      const StageModule stage(model, stage_of_layer, StageId{s});
      model::Tensors inputs;
      for (const auto& value : stage.inputs()) inputs.push_back(values.at(value));
      const model::Tensors outputs = stage.forward(weights_of(stage), buffers, inputs, {.training = false});
      for (size_t i = 0; i < outputs.size(); ++i) values[stage.outputs()[i]] = outputs[i];
    }
    EXPECT_TRUE(values.at(model.graph().outputs().front()).equal(expected));
  }
}

}  // namespace
}  // namespace penstock::runtime::testing
