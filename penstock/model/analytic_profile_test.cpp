#include "penstock/model/analytic_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/model/builder.h"
#include "penstock/model/profiler.h"
#include "penstock/model/zoo.h"
#include "penstock/profile/roofline.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using profile::find_device;
using testing::AllOf;
using testing::HasSubstr;
using testing::Property;
using testing::Throws;

profile::Profile on_v100(const char* name, int64_t batch_size) {
  return analytic_profile(make_model({.name = name}), find_device("v100"),
                          {.batch_size = batch_size});
}

int64_t sum(const profile::Profile& profile, int64_t profile::LayerCost::*member) {
  int64_t total = 0;
  for (const profile::LayerCost& cost : profile.costs) total += cost.*member;
  return total;
}

/// Every kind of layer, branches, views, several outputs, an unused value and a model output
/// inside.
Model branches() {
  ModelBuilder net("branches");
  const Value x = net.input({4, 6, 6});
  const std::vector<Value> parts = net.split(
      net.conv2d(x, {.channels = 6, .kernel = 3, .padding = 1, .name = "conv"}), 3, "split");
  const Value twice = net.add(parts[0], parts[0], "twice");
  const Value normal = net.batch_norm2d(parts[1], {.name = "norm"});
  net.relu(parts[2], "unused");
  Value y = net.concat({twice, normal, net.tanh(normal, "tanh")}, "joined");
  y = net.dropout(net.max_pool2d(y, {.kernel = 3, .stride = 1, .padding = 1, .name = "max"}), 0.25,
                  "drop");
  y = net.avg_pool2d(net.adaptive_avg_pool2d(y, 4, "adaptive"), {.kernel = 2, .name = "average"});
  const Value logits = net.linear(net.flatten(y, "flat"), {.features = 3, .name = "fc"});
  return net.build(std::vector<Value>{logits, twice});
}

TEST(AnalyticProfile, SizesAreThoseOfTheMeasuredProfile) {
  const std::vector<Model> models = {
      branches(),
      make_model({.name = "lenet5"}),
      make_model({.name = "vgg_small"}),
      make_model({.name = "mlp", .width = 16, .depth = 2}),
      make_model({.name = "resnet18", .input_shape = {3, 32, 32}, .classes = 10}),
      make_model({.name = "alexnet", .input_shape = {3, 96, 96}, .classes = 10})};
  for (const Model& model : models) {
    SCOPED_TRACE(model.name());
    const profile::Profile measured =
        measure_profile(model, {.batch_size = 4, .warmup = 0, .samples = 1});
    const profile::Profile estimated =
        analytic_profile(model, find_device("cpu-core"), {.batch_size = 4});
    EXPECT_EQ(estimated.graph, measured.graph);
    for (size_t i = 0; i < measured.costs.size(); ++i) {
      SCOPED_TRACE(model.graph().layers()[i].name);
      EXPECT_EQ(estimated.costs[i].output_bytes, measured.costs[i].output_bytes);
      EXPECT_EQ(estimated.costs[i].weight_bytes, measured.costs[i].weight_bytes);
      EXPECT_EQ(estimated.costs[i].stash_bytes, measured.costs[i].stash_bytes);
      EXPECT_EQ(estimated.costs[i].step_ns > 0, measured.costs[i].step_ns > 0);
    }
  }
}

TEST(AnalyticProfile, NamesItsSource) {
  const profile::Profile profile = on_v100("lenet5", 32);
  EXPECT_NO_THROW(profile::validate(profile));
  EXPECT_EQ(profile.source, "analytic");
  EXPECT_EQ(profile.device, "v100");
  EXPECT_EQ(profile.model, "lenet5");
  EXPECT_EQ(profile.batch_size, 32);
  EXPECT_EQ(profile.samples, 0);
  EXPECT_EQ(profile.copy_bandwidth_bytes_per_s, 240'000'000'000) << "0.8 of 900 GB/s, three passes";
  EXPECT_EQ(profile::parse_profile(profile::to_json(profile), "again"), profile);
}

TEST(AnalyticProfile, GradientsFlowAsInTraining) {
  const Model model = branches();
  const profile::Profile profile = analytic_profile(model, find_device("v100"), {.batch_size = 4});
  const auto backward = [&](const char* name) {
    return profile.costs[model.graph().find(name).index()].backward_ns;
  };
  EXPECT_EQ(backward("unused"), 0) << "nothing flows back from it";
  EXPECT_GT(backward("conv"), 0);
  EXPECT_GT(backward("split"), 0);

  ModelBuilder net("m");
  const Value x = net.relu(net.input({64}), "first");
  const profile::Profile small = analytic_profile(net.build(net.linear(x, {.features = 8})),
                                                  find_device("v100"), {.batch_size = 4});
  EXPECT_EQ(small.costs[0].backward_ns, 0) << "a layer before all weights has no backward";
  EXPECT_GT(small.costs[1].backward_ns, 0);
}

TEST(AnalyticProfile, TheLayerThatMadeAValueSumsItsGradients) {
  const auto backward_of_relu = [](bool used_twice) {
    ModelBuilder net("m");
    const Value y = net.relu(net.linear(net.input({8}), {.features = 1000}), "relu");
    const Value z = net.tanh(y);
    const Model model = net.build(used_twice ? net.add(z, y) : z);
    const profile::Profile profile =
        analytic_profile(model, find_device("v100"), {.batch_size = 1000});
    return profile.costs[model.graph().find("relu").index()].backward_ns;
  };
  profile::Operation addition;
  addition.flops = 1'000'000;
  addition.bytes = 4 * 3 * 1'000'000;
  EXPECT_EQ(backward_of_relu(true) - backward_of_relu(false),
            profile::operation_ns(addition, find_device("v100")));
}

TEST(AnalyticProfile, TheFirstLayerComputesNoGradientOfItsInput) {
  const Model model = make_model({.name = "mlp", .width = 784, .depth = 2});
  const profile::Profile profile =
      analytic_profile(model, find_device("cpu-core"), {.batch_size = 64});
  const profile::LayerCost& first = profile.costs[model.graph().find("fc1").index()];
  const profile::LayerCost& second = profile.costs[model.graph().find("fc2").index()];
  EXPECT_EQ(first.forward_ns, second.forward_ns);
  EXPECT_EQ(first.backward_ns + second.forward_ns, second.backward_ns)
      << "the three products cost the same";
}

TEST(AnalyticProfile, WeightsOfNormalisationAreMadeWithTheInputs) {
  ModelBuilder net("m");
  Value x = net.batch_norm2d(net.input({2, 6, 6}), {.name = "first"});
  x = net.batch_norm2d(net.conv2d(x, {.channels = 2, .kernel = 3, .padding = 1, .name = "conv"}),
                       {.name = "second"});
  const Model model = net.build(net.linear(net.flatten(x), {.features = 3}));
  const profile::Profile profile = analytic_profile(model, find_device("v100"), {.batch_size = 64});
  const auto cost = [&](const char* name) {
    return profile.costs[model.graph().find(name).index()];
  };
  EXPECT_EQ(cost("first").backward_weight_ns, cost("first").backward_ns)
      << "nothing else is wanted of the first layer";
  EXPECT_EQ(cost("second").backward_weight_ns, 0);
  EXPECT_GT(cost("second").backward_ns, cost("first").backward_ns)
      << "sums and the pass that uses them";
  EXPECT_GT(cost("conv").backward_weight_ns, 0);
}

TEST(AnalyticProfile, StepsCostByTheOptimisersState) {
  profile::DeviceSpec device = find_device("cpu-core");
  device.launch_ns = 0;
  const Model model = make_model({.name = "mlp"});
  const auto step = [&](const OptimizerSpec& optimizer) {
    return static_cast<double>(sum(analytic_profile(model, device, {.optimizer = optimizer}),
                                   &profile::LayerCost::step_ns));
  };
  const double plain = step({.kind = OptimizerKind::Sgd, .momentum = 0});
  EXPECT_NEAR(step({.kind = OptimizerKind::Sgd}) / plain, 5.0 / 3, 0.001);
  EXPECT_NEAR(step({.kind = OptimizerKind::Adam}) / plain, 7.0 / 3, 0.001);
}

// Sums are read and written and gradients read; a step of plain SGD has the same traffic.
TEST(AnalyticProfile, AddingGradientsPassesOverThreeTensors) {
  profile::DeviceSpec device = find_device("cpu-core");
  device.launch_ns = 0;
  const profile::Profile profile =
      analytic_profile(make_model({.name = "mlp"}), device,
                       {.optimizer = {.kind = OptimizerKind::Sgd, .momentum = 0}});
  for (const profile::LayerCost& cost : profile.costs) EXPECT_EQ(cost.accumulate_ns, cost.step_ns);
  EXPECT_GT(sum(profile, &profile::LayerCost::accumulate_ns), 0);
}

TEST(AnalyticProfile, TimesGrowWithTheBatch) {
  for (const profile::DeviceSpec& device : profile::builtin_devices()) {
    SCOPED_TRACE(device.name);
    const Model model = make_model({.name = "resnet18"});
    profile::Profile before = analytic_profile(model, device, {.batch_size = 1});
    for (const int64_t batch : {2, 3, 8, 64, 100, 1000}) {
      profile::Profile after = analytic_profile(model, device, {.batch_size = batch});
      for (size_t i = 0; i < after.costs.size(); ++i) {
        EXPECT_GE(after.costs[i].forward_ns, before.costs[i].forward_ns);
        EXPECT_GE(after.costs[i].backward_ns, before.costs[i].backward_ns);
        EXPECT_EQ(after.costs[i].step_ns, before.costs[i].step_ns);
      }
      before = std::move(after);
    }
  }
}

/// Forward and backward of one micro-batch, summed over the layers of the profiles that the authors
/// of PipeDream published (github.com/msr-fiddle/pipedream,
/// profiler/image_classification/profiles), without the input node; docs/profiles.md has the errors
/// by class of layer.
TEST(AnalyticProfile, IsNearThePublishedV100Profiles) {
  struct Published {
    const char* model;
    int64_t batch_size;
    double forward_ms;
    double backward_ms;
    double bound;  ///< on the relative error of their sum
  };
  for (const Published& published : {Published{"vgg16", 128, 233.902, 438.633, 0.05},
                                     Published{"resnet50", 128, 182.488, 260.931, 0.2},
                                     Published{"alexnet", 256, 44.801, 40.520, 0.25},
                                     Published{"resnet18", 256, 107.446, 152.296, 0.1}}) {
    SCOPED_TRACE(published.model);
    const double estimated = static_cast<double>(profile::total_compute_ns(
                                 on_v100(published.model, published.batch_size))) /
                             1e6;
    EXPECT_NEAR(estimated / (published.forward_ms + published.backward_ms), 1, published.bound);
  }
}

TEST(AnalyticProfile, RefusesWhatIsOutOfRange) {
  const Model model = make_model({.name = "lenet5"});
  const profile::DeviceSpec v100 = find_device("v100");
  EXPECT_THROW(analytic_profile(model, v100, {.batch_size = 0}), ConfigError);
  EXPECT_THROW(analytic_profile(model, v100, {.batch_size = -1}), ConfigError);
  EXPECT_THROW(analytic_profile(model, v100, {.batch_size = std::numeric_limits<int64_t>::max()}),
               ConfigError);
  EXPECT_THROW(analytic_profile(model, {}, {}), ConfigError);
  EXPECT_NO_THROW(analytic_profile(model, v100, {.batch_size = int64_t{1} << 36}));
  EXPECT_THAT(
      [&] {
        analytic_profile(make_model({.name = "vgg16"}), v100, {.batch_size = int64_t{1} << 40});
      },
      Throws<ConfigError>(Property(&ConfigError::what, HasSubstr("'features.0'"))));
}

TEST(AnalyticProfile, RefusesADeviceThatIsTooSlow) {
  const profile::DeviceSpec slow{.name = "slow", .flops_per_s = 1, .bandwidth_bytes_per_s = 1};
  EXPECT_THAT([&] { analytic_profile(make_model({.name = "vgg16"}), slow, {}); },
              Throws<ConfigError>(
                  Property(&ConfigError::what, AllOf(HasSubstr("'slow'"), HasSubstr("2^60 ns")))));
}

class CountsNonsense : public Layer {
 public:
  std::string kind() const override { return "nonsense"; }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    return {inputs[0]};
  }
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>&,
                          int64_t) const override {
    profile::Operation operation;
    operation.flops = operation.bytes = -1'000'000'000'000;
    return {
        .forward = {operation}, .backward_weights = {}, .backward_inputs = {}, .stash_bytes = 0};
  }
};

TEST(AnalyticProfile, NamesALayerWithInvalidCounts) {
  ModelBuilder net("m");
  const Model model =
      net.build(net.apply(std::make_shared<CountsNonsense>(), {net.input({3})}, "culprit"));
  EXPECT_THAT([&] { analytic_profile(model, find_device("v100"), {}); },
              Throws<ConfigError>(Property(&ConfigError::what, HasSubstr("'culprit'"))));
}

}  // namespace
}  // namespace penstock::model
