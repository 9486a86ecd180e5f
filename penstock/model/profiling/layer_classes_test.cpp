// Which layers cost the same, and what is run for a range of them.
#include "penstock/model/profiling/layer_classes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "penstock/model/builder.h"
#include "penstock/model/known_code.h"
#include "penstock/model/profiler.h"
#include "penstock/model/profiling/model_part.h"
#include "penstock/model/profiling/model_pass.h"
#include "penstock/model/profiling/repeats.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Says nothing of its code.
class Doubling : public Layer {
 public:
  std::string kind() const override { return "doubling"; }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {inputs[0] * 2};
  }
};

/// Residual blocks of a product and an activation, between two products.
Model blocks(int count, int64_t wide = 0) {
  ModelBuilder net("blocks");
  Value x = net.linear(net.input({8}), {.features = 16, .name = "in"});
  for (int b = 0; b < count; ++b) {
    Value y = net.linear(x, {.features = b == wide ? 17 : 16, .name = fmt::format("fc{}", b)});
    if (b == wide) y = net.linear(y, {.features = 16, .name = "narrow"});
    x = net.add(x, net.relu(y, fmt::format("relu{}", b)), fmt::format("add{}", b));
  }
  return net.build(net.linear(x, {.features = 3, .name = "out"}));
}

std::vector<std::string> names(const Model& model, const std::vector<LayerId>& layers) {
  std::vector<std::string> names;
  for (const LayerId id : layers) names.push_back(model.graph().layer(id).name);
  return names;
}

std::vector<std::vector<std::string>> classes_of(const Model& model) {
  std::vector<std::vector<std::string>> found;
  const LayerId last{model.graph().num_layers() - 1};
  for (const auto& one : detail::layer_classes(model, LayerId{0}, last))
    found.push_back(names(model, one));
  return found;
}

TEST(LayerClasses, AreTheLayersOfEqualBlocks) {
  EXPECT_THAT(classes_of(blocks(4, -1)),
              ElementsAre(ElementsAre("fc0", "fc1", "fc2", "fc3"),
                          ElementsAre("relu0", "relu1", "relu2", "relu3"),
                          // The last one is read once.
                          ElementsAre("add0", "add1", "add2")));
  EXPECT_THAT(classes_of(blocks(3, 1)),
              ElementsAre(ElementsAre("fc0", "fc2"), ElementsAre("relu0", "relu1", "relu2"),
                          ElementsAre("add0", "add1")));
}

TEST(LayerClasses, TellAttributesAndUnknownCodeApart) {
  ModelBuilder net("m");
  Value x = net.input({2, 8, 8});
  x = net.conv2d(x, {.channels = 2, .kernel = 3, .padding = 1, .name = "first"});
  x = net.conv2d(x, {.channels = 2, .kernel = 3, .padding = 1, .name = "a"});
  x = net.conv2d(x, {.channels = 2, .kernel = 3, .padding = 1, .groups = 2, .name = "grouped"});
  x = net.conv2d(x, {.channels = 2, .kernel = 3, .padding = 1, .name = "b"});
  x = net.apply(std::make_shared<Doubling>(), {x}, "d1").front();
  x = net.apply(std::make_shared<Doubling>(), {x}, "d2").front();
  x = net.linear(net.flatten(x, "flat"), {.features = 3, .name = "out"});
  // The gradient of the first one's input is not needed.
  EXPECT_THAT(classes_of(net.build(x)), ElementsAre(ElementsAre("a", "b")));
}

TEST(Coverage, RunsTheFirstAndTheLastOfAClass) {
  const Model model = blocks(5, -1);
  const profile::LayerRange all = profile::all_layers(model.graph());
  const auto classes = detail::layer_classes(model, all.first, all.last);
  const detail::Coverage coverage = detail::cover(model, all, classes);
  EXPECT_THAT(names(model, coverage.run),
              ElementsAre("in", "fc0", "relu0", "add0", "add3", "fc4", "relu4", "add4", "out"));
  EXPECT_EQ(coverage.stand_in[model.graph().find("fc2").index()], model.graph().find("fc0"));
  EXPECT_EQ(coverage.stand_in[model.graph().find("fc4").index()], model.graph().find("fc4"));

  const detail::ModelPart part = detail::part_of(model, coverage.run, coverage.stand_in);
  EXPECT_TRUE(part.makes_only_result);
  EXPECT_THAT(part.input_needs_gradient, ElementsAre(false));
  const auto missing = [&](const char* name) {
    return part.missing_uses[part.model.graph().find(name).index()].front();
  };
  // "fc1" and "add1" read it, which are not run; "add3" reads "add0" for "add2".
  EXPECT_EQ(missing("add0"), 1);
  EXPECT_EQ(missing("add3"), 0);
  EXPECT_EQ(missing("in"), 0);
}

TEST(Coverage, MakesUpWhatComesFromOtherLayers) {
  const Model model = blocks(4, -1);
  const profile::LayerRange range{model.graph().find("fc2"), model.graph().find("add2")};
  const detail::Coverage coverage = detail::cover(model, range, {});
  EXPECT_THAT(names(model, coverage.run), ElementsAre("fc2", "relu2", "add2"));
  const detail::ModelPart part = detail::part_of(model, coverage.run, coverage.stand_in);
  EXPECT_FALSE(part.makes_first_result);
  EXPECT_THAT(part.input_needs_gradient, ElementsAre(false, true));
  EXPECT_THAT(part.model.inputs().back().shape, ElementsAre(16));
}

ProfilerOptions few_passes() {
  ProfilerOptions options;
  options.batch_size = 4;
  options.warmup = 1;
  options.samples = 3;
  options.repeats = Repeats::Once;
  return options;
}

TEST(ProfilerRepeats, EachLayerHasTheCostsOfAnEqualOne) {
  const Model model = blocks(6, -1);
  const profile::Share once = measure_share(model, few_passes());
  EXPECT_EQ(once.measured, 9);
  EXPECT_TRUE(once.is_whole());
  EXPECT_NO_THROW(profile::validate(once.profile));
  ProfilerOptions options = few_passes();
  options.repeats = Repeats::Auto;
  EXPECT_EQ(measure_share(model, options).measured, 20) << "a small model";
  options.repeats = Repeats::All;
  const profile::Share all = measure_share(model, options);
  EXPECT_EQ(all.measured, 20);
  EXPECT_EQ(once.profile.graph, all.profile.graph);
  for (size_t l = 0; l < all.profile.costs.size(); ++l) {
    const profile::LayerCost& a = once.profile.costs[l];
    const profile::LayerCost& b = all.profile.costs[l];
    SCOPED_TRACE(model.graph().layers()[l].name);
    EXPECT_GT(a.forward_ns, 0);
    EXPECT_GT(a.backward_ns, 0);
    EXPECT_EQ(a.output_bytes, b.output_bytes);
    EXPECT_EQ(a.weight_bytes, b.weight_bytes);
    EXPECT_EQ(a.stash_bytes, b.stash_bytes);
    EXPECT_EQ(a.backward_weight_ns > 0, b.backward_weight_ns > 0);
    EXPECT_EQ(a.loss_ns > 0, b.loss_ns > 0);
  }
  const auto cost = [&](const char* name) {
    return once.profile.costs[model.graph().find(name).index()];
  };
  EXPECT_EQ(cost("fc0"), cost("fc3"));
}

TEST(ProfilerShare, MeasuresOnlyItsLayers) {
  const Model model = blocks(4, -1);
  ProfilerOptions options = few_passes();
  options.layers = {model.graph().find("fc2"), model.graph().find("add3")};
  const profile::Share share = measure_share(model, options);
  EXPECT_EQ(share.layers, *options.layers);
  EXPECT_EQ(share.measured, 6);
  for (int32_t l = 0; l < model.graph().num_layers(); ++l) {
    const bool inside = LayerId{l} >= share.layers.first && LayerId{l} <= share.layers.last;
    const profile::LayerCost& cost = share.profile.costs[static_cast<size_t>(l)];
    EXPECT_EQ(cost.forward_ns > 0, inside) << l;
    EXPECT_EQ(cost.backward_ns > 0, inside) << l;
    EXPECT_EQ(cost.loss_ns, 0);
  }
  ProfilerOptions front = few_passes();
  front.layers = {LayerId{0}, LayerId{share.layers.first.value - 1}};
  ProfilerOptions back = few_passes();
  back.layers = {model.graph().find("out"), model.graph().find("out")};
  const profile::Share whole = profile::join(
      {share, measure_share(model, front), measure_share(model, back)}, {"a", "b", "c"});
  EXPECT_NO_THROW(profile::validate(whole.profile));
  EXPECT_GT(whole.profile.costs.back().loss_ns, 0);
  options.layers = {LayerId{2}, LayerId{99}};
  EXPECT_THROW(measure_share(model, options), ConfigError);
}

/// Takes 8 numbers per sample; makes them with the samples last.
class Turned : public Layer, public KnownCode {
 public:
  std::string kind() const override { return "turned"; }
  std::string code() const override { return "turned"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>&) const override { return {{8}}; }
  at::Tensor empty_output(size_t, int64_t batch) const override {
    return at::empty({batch, 8}, at::TensorOptions().dtype(at::kFloat)).t();
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {inputs[0].t()};
  }
};

TEST(ProfilerShare, MadeUpValuesLieAsTheirLayerMakesThem) {
  ModelBuilder net("m");
  Value x = net.linear(net.input({8}), {.features = 8, .name = "in"});
  x = net.apply(std::make_shared<Turned>(), {x}, "there").front();
  x = net.apply(std::make_shared<Turned>(), {x}, "back").front();
  const Model model = net.build(net.linear(x, {.features = 3, .name = "out"}));
  ProfilerOptions options = few_passes();
  options.layers = {model.graph().find("back"), model.graph().find("out")};
  const profile::Share share = measure_share(model, options);
  EXPECT_GT(share.profile.costs[2].backward_ns, 0);
  EXPECT_EQ(share.profile.costs[2].output_bytes, std::vector<int64_t>{4 * 8 * 4});
}

TEST(Differ, IsBeyondTheBoundAndTheNoise) {
  const auto samples = [](int count, int64_t first, int64_t second, int64_t noise) {
    std::vector<std::vector<detail::LayerTimes>> samples;
    for (int i = 0; i < count; ++i) {
      detail::LayerTimes a;
      detail::LayerTimes b;
      a.forward_ns = first + (i % 2 == 0 ? noise : -noise);
      b.forward_ns = second;
      samples.push_back({a, b});
    }
    return samples;
  };
  const detail::CheckedPair pair{.first = 0, .second = 1, .layers = 10};
  EXPECT_TRUE(detail::differ(samples(10, 1000, 1200, 10), pair, 20'000));
  EXPECT_TRUE(detail::differ(samples(10, 1200, 1000, 10), pair, 20'000));
  EXPECT_FALSE(detail::differ(samples(10, 1000, 1100, 10), pair, 20'000)) << "less than 10 %";
  EXPECT_FALSE(detail::differ(samples(10, 1000, 1200, 400), pair, 20'000)) << "noise";
  EXPECT_FALSE(detail::differ(samples(10, 1000, 1200, 10), pair, 2'000'000)) << "too little of all";
  EXPECT_FALSE(detail::differ(samples(3, 1000, 1200, 10), pair, 20'000)) << "error not known";
}

/// Twice as slow as another one of the same code.
class Sleeper : public Layer, public KnownCode {
 public:
  explicit Sleeper(int64_t ms) : ms_(ms) {}
  std::string kind() const override { return "sleeper"; }
  std::string code() const override { return "sleeper"; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    return inputs;
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms_));
    return {inputs[0] * 2};
  }

 private:
  int64_t ms_;
};

TEST(ProfilerRepeats, LayersThatDifferAreMeasuredOneByOne) {
  ModelBuilder net("m");
  Value x = net.linear(net.input({3}), {.features = 3, .name = "in"});
  for (int i = 0; i < 4; ++i)
    x = net.apply(std::make_shared<Sleeper>(i == 3 ? 20 : 4), {x}, fmt::format("s{}", i)).front();
  const Model model = net.build(net.linear(x, {.features = 3, .name = "out"}));
  ProfilerOptions options = few_passes();
  options.samples = 6;
  const profile::Share share = measure_share(model, options);
  EXPECT_EQ(share.measured, 6);
  EXPECT_LT(share.profile.costs[3].forward_ns, share.profile.costs[4].forward_ns);
}

TEST(MeasureShare, MuonStepsTheLayersThatItStepsInTheWholeModel) {
  ModelBuilder net("deep");
  Value x = net.input({16});
  for (int i = 0; i < 4; ++i) x = net.linear(x, {.features = 16, .name = fmt::format("fc{}", i)});
  const Model model = net.build(x);
  ProfilerOptions options = few_passes();
  options.optimizer = usual_spec(OptimizerKind::Muon);
  const std::vector<LayerId> run = {LayerId{1}, LayerId{2}, LayerId{3}};
  const detail::ModelPart part =
      detail::part_of(model, run, {LayerId{-1}, LayerId{1}, LayerId{2}, LayerId{3}});
  const detail::ModelPass pass(part, options);
  const auto is_matrix = [&](int layer, int parameter) {
    return pass.optimizer_of({LayerId{layer}, parameter}).spec().as_matrix;
  };
  EXPECT_TRUE(is_matrix(0, 0)) << "the share's first layer, hidden in the model";
  EXPECT_FALSE(is_matrix(0, 1)) << "a bias";
  EXPECT_TRUE(is_matrix(1, 0));
  EXPECT_FALSE(is_matrix(2, 0)) << "the model's last layer";
}

}  // namespace
}  // namespace penstock::model
