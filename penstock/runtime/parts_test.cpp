// Unit tests of the runtime's parts: weight store, order of gradients, stage module.
#include "penstock/runtime/gradient_order.h"
#include "penstock/runtime/ordered_sum.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/weight_store.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

class WeightStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<model::Optimizer> sgd_ =
      model::make_optimizer({.kind = model::OptimizerKind::Sgd, .momentum = 0});
  model::Tensors gradient_ = {at::ones({4})};
  float first(const WeightStore& store, int64_t version) {
    return store.at(WeightVersion{version})[0][0].item<float>();
  }
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

/// As of a checkpoint whose groups gave the weight to AdamW.
TEST_F(WeightStoreTest, RefusesStateOfAnotherShapeAndStaysAsItWas) {
  model::OptimizerSpec spec = model::usual_spec(model::OptimizerKind::Muon);
  const auto of_matrices = model::make_optimizer(spec);
  spec.as_matrix = false;
  const auto of_others = model::make_optimizer(spec);
  WeightStore store({at::ones({2, 3})}, *of_matrices);
  const WeightStore other({at::zeros({2, 3})}, *of_others);
  const auto load = [&store](const WeightStore& from) {
    store.load(from.at(WeightVersion{0}), from.state());
  };
  EXPECT_THROW(load(other), ConfigError);
  EXPECT_TRUE(store.at(WeightVersion{0})[0].equal(at::ones({2, 3})));
  load(WeightStore({at::zeros({2, 3})}, *of_matrices));
  EXPECT_TRUE(store.at(WeightVersion{0})[0].equal(at::zeros({2, 3})));
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

TEST_F(WeightStoreTest, MemoryOfDeadVersionsIsReused) {
  WeightStore store({at::ones({4})}, *sgd_);
  const void* oldest = store.at(WeightVersion{0})[0].data_ptr();
  store.step(gradient_, {.learning_rate = 0.5});
  store.release(WeightVersion{0});
  const int64_t bytes = store.bytes();
  store.step(gradient_, {.learning_rate = 0.5});
  EXPECT_EQ(store.at(WeightVersion{2})[0].data_ptr(), oldest);
  EXPECT_EQ(store.bytes(), bytes);
}

TEST_F(WeightStoreTest, MemoryThatIsStillReferencedIsNotReused) {
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

TEST_F(WeightStoreTest, AnUndefinedGradientLeavesTheWeightUnchanged) {
  WeightStore store({at::ones({4})}, *sgd_);
  const model::Tensors none(1);
  store.step(none, {.learning_rate = 0.5});
  EXPECT_EQ(first(store, 1), 1.0f);
  store.release(WeightVersion{0});
  EXPECT_EQ(first(store, 1), 1.0f);
}

TEST(OrderedSumTest, SumsFromTheLeftForAnyOrderOfArrival) {
  const std::vector<float> values = {1.0f, 1e8f, -1e8f, 0.5f};
  const auto sum = [&](const std::vector<size_t>& order) {
    OrderedSum sum(values.size());
    for (const size_t position : order)
      sum.put(position, position == 3 ? at::Tensor() : at::full({2}, values[position]));
    return sum.take()[0].item<float>();
  };
  EXPECT_EQ(sum({0, 1, 2, 3}), sum({3, 2, 1, 0}));
  EXPECT_EQ(sum({0, 1, 2, 3}), sum({2, 3, 0, 1}));
  OrderedSum incomplete(2);
  incomplete.put(1, at::ones({1}));
  EXPECT_THROW(incomplete.take(), InternalError);
}

TEST(GradientOrderTest, StagesSumOnlyTheBeginningOfTheCanonicalSum) {
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
  EXPECT_EQ(gradient_parts(ids({3, 7, 8}), stages, home, false),
            (Parts{{StageId{1}, ids({8, 7, 3})}}));
  EXPECT_EQ(gradient_parts(ids({3, 5, 6, 8}), stages, home, false),
            (Parts{{StageId{1}, ids({8})},
                   {StageId{2}, ids({6})},
                   {StageId{2}, ids({5})},
                   {StageId{1}, ids({3})}}));
  EXPECT_EQ(gradient_parts(ids({1, 4, 5, 6}), stages, home, false),
            (Parts{{StageId{2}, ids({6, 5})}, {home, ids({4})}, {home, ids({1})}}));
  EXPECT_EQ(gradient_parts(ids({5, 6}), stages, home, true),
            (Parts{{home, {}}, {StageId{2}, ids({6})}, {StageId{2}, ids({5})}}));
  EXPECT_EQ(gradient_parts({}, stages, home, true), (Parts{{home, {}}}));
}

TEST(StageModuleTest, StagesInARowEqualTheWholeModel) {
  const model::Model model = skip_model();
  const StageModule whole(model, std::vector<StageId>(model.graph().layers().size(), StageId{0}),
                          StageId{0});
  const at::Tensor x = at::linspace(-1, 1, 24).view({3, 8});
  const auto weights_of = [&](const StageModule& stage) {
    model::Tensors weights;
    for (const LayerId id : stage.layers()) {
      for (const at::Tensor& weight : model.initial_weights(id, 5)) weights.push_back(weight);
    }
    return weights;
  };
  model::Tensors buffers;
  const at::Tensor expected =
      whole.forward(weights_of(whole), buffers, model::Tensors{x}, {.training = false}).front();
  for (const int stages : {2, 3, 5, 9}) {
    const auto stage_of_layer = cut(model, stages);
    std::map<graph::ValueRef, at::Tensor> values = {{graph::ValueRef::model_input(0), x}};
    for (int s = 0; s < stages; ++s) {
      const StageModule stage(model, stage_of_layer, StageId{s});
      model::Tensors inputs;
      for (const auto& value : stage.inputs()) inputs.push_back(values.at(value));
      const model::Tensors outputs =
          stage.forward(weights_of(stage), buffers, inputs, {.training = false});
      for (size_t i = 0; i < outputs.size(); ++i) values[stage.outputs()[i]] = outputs[i];
    }
    EXPECT_TRUE(values.at(model.graph().outputs().front()).equal(expected));
  }
}

}  // namespace
}  // namespace penstock::runtime::testing
