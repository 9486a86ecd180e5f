#include "penstock/model/profiler.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model/builder.h"
#include "penstock/model/profiling/memory_meter.h"
#include "penstock/model/profiling/summary.h"
#include "penstock/model/zoo.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::Throws;

ProfilerOptions quick() {
  ProfilerOptions options;
  options.batch_size = 4;
  options.warmup = 1;
  options.samples = 3;
  return options;
}

/// Works in the trial run of shape inference, then fails on any other batch.
class FailsLater : public Layer {
 public:
  std::string kind() const override { return "fails_later"; }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    if (inputs[0].size(0) != 2) return {inputs[0].view({3, 5, 7})};
    return {inputs[0]};
  }
};

TEST(Profiler, MeasuresLeNet5) {
  const Model model = make_model({.name = "lenet5"});
  std::vector<int> done;
  ProfilerOptions options = quick();
  options.progress = [&](int passes, int total) {
    EXPECT_EQ(total, 6);
    done.push_back(passes);
  };
  const profile::Profile profile = measure_profile(model, options);
  EXPECT_NO_THROW(profile::validate(profile));
  EXPECT_EQ(profile.graph, model.graph());
  EXPECT_EQ(profile.model, "lenet5");
  EXPECT_EQ(profile.source, "measured");
  EXPECT_EQ(profile.batch_size, 4);
  EXPECT_EQ(profile.samples, 3);
  EXPECT_THAT(profile.device, HasSubstr("1 thread"));
  EXPECT_GT(profile.copy_bandwidth_bytes_per_s, 0);
  EXPECT_EQ(done, (std::vector<int>{1, 2, 3, 4, 5, 6}));

  int64_t weight_bytes = 0;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const profile::LayerCost& cost = profile.costs[static_cast<size_t>(i)];
    SCOPED_TRACE(model.graph().layer(LayerId{i}).name);
    EXPECT_EQ(cost.accumulate_ns > 0, cost.weight_bytes > 0);
    EXPECT_GT(cost.forward_ns, 0);
    EXPECT_GT(cost.backward_ns, 0);
    EXPECT_EQ(cost.step_ns > 0, model.parameter_count(LayerId{i}) > 0);
    EXPECT_EQ(cost.weight_bytes, 4 * model.parameter_count(LayerId{i}));
    EXPECT_EQ(cost.backward_weight_ns > 0, model.parameter_count(LayerId{i}) > 0);
    weight_bytes += cost.weight_bytes;
  }
  const profile::LayerCost& first = profile.costs[model.graph().find("conv1").index()];
  EXPECT_EQ(first.backward_weight_ns, first.backward_ns)
      << "nothing else is wanted of the first layer";
  const profile::LayerCost& last = profile.costs[model.graph().find("fc3").index()];
  EXPECT_LT(last.backward_weight_ns, last.backward_ns) << "inputs and loss take their part";
  EXPECT_GT(last.loss_ns, 0);
  EXPECT_EQ(weight_bytes, 4 * 61'706);
  const profile::LayerCost& conv1 = profile.costs[model.graph().find("conv1").index()];
  EXPECT_EQ(conv1.output_bytes, (std::vector<int64_t>{4 * 6 * 28 * 28 * 4}));
  EXPECT_EQ(conv1.stash_bytes, 4 * 28 * 28 * 4) << "its input; tanh keeps its own output";
  EXPECT_GE(conv1.working_bytes, conv1.output_bytes[0] + conv1.weight_bytes)
      << "gradients of its output and its weights, and what the library lays out anew";
  const LayerId after{model.graph().find("conv1").value + 1};
  ASSERT_EQ(model.graph().layer(after).kind, "tanh");
  EXPECT_EQ(profile.costs[after.index()].working_bytes, 2 * conv1.output_bytes[0]);
  const profile::LayerCost& flatten = profile.costs[model.graph().find("flatten").index()];
  EXPECT_EQ(flatten.output_bytes, (std::vector<int64_t>{4 * 400 * 4}));
  EXPECT_EQ(flatten.stash_bytes, 0) << "a view keeps nothing of its own";
}

TEST(Profiler, TheLossIsAPartOfTheLayerThatMakesTheOutput) {
  ModelBuilder net("m");
  Value x = net.conv2d(net.input({1, 16, 16}), {.channels = 2, .kernel = 3, .name = "first"});
  x = net.conv2d(x, {.channels = 2, .kernel = 3, .padding = 1, .name = "out"});
  const Model model = net.build(x);
  const auto losses = [&](const std::optional<ProfiledLoss>& loss) {
    std::vector<int64_t> found;
    for (const profile::LayerCost& cost : measure_profile(model, quick(), loss).costs) {
      EXPECT_LE(cost.loss_ns, cost.forward_ns + cost.backward_ns);
      found.push_back(cost.loss_ns);
    }
    return found;
  };
  EXPECT_GT(losses({})[1], 0) << "cross-entropy of the channels";
  const std::vector<int64_t> pixels =
      losses(ProfiledLoss{pixel_cross_entropy, at::zeros({4, 14, 14}, at::kLong)});
  EXPECT_EQ(pixels[0], 0);
  EXPECT_GT(pixels[1], 0);
  EXPECT_GT(losses(ProfiledLoss{mean_squared_error, at::zeros({4, 2, 14, 14})})[1], 0);
  ProfilerOptions options = quick();
  options.concurrency = 2;
  EXPECT_THAT(
      [&] {
        measure_profile(model, options, ProfiledLoss{mean_squared_error, at::zeros({4, 2, 3, 3})});
      },
      Throws<RuntimeError>(Property(&RuntimeError::what, HasSubstr("the loss of layer "
                                                                   "'out'"))));
}

TEST(Profiler, TakesMoreSamplesOfAFastModelUpToALimit) {
  const Model model = make_model({.name = "mlp", .width = 8, .depth = 1});
  for (const int warmup : {0, 2}) {
    SCOPED_TRACE(warmup);
    ProfilerOptions options = quick();
    options.warmup = warmup;
    options.least_time = std::chrono::hours(1);
    options.most_samples = 21;
    std::pair<int, int> last;
    options.progress = [&](int done, int total) {
      EXPECT_EQ(done, last.first + 1);
      EXPECT_LE(done, total);
      last = {done, total};
    };
    EXPECT_EQ(measure_profile(model, options).samples, 21);
    EXPECT_EQ(last, std::pair(warmup + 21 + 11, warmup + 21 + 11));
    options.progress = {};
    options.most_samples = 1;
    EXPECT_EQ(measure_profile(model, options).samples, 3) << "never fewer than asked for";
    options.most_samples = 21;
    options.least_time = {};
    EXPECT_EQ(measure_profile(model, options).samples, 3);
  }
}

TEST(Profiler, GoesOnUntilTheMeanIsKnownOrTimeIsUp) {
  const Model model = make_model({.name = "mlp", .width = 8, .depth = 1});
  ProfilerOptions options = quick();
  options.warmup = 1;
  options.most_samples = 40;
  options.longest = std::chrono::hours(1);
  options.wanted_error = 1e-12;  // of no machine
  profile::Profile profile = measure_profile(model, options);
  EXPECT_EQ(profile.samples, 40);
  EXPECT_GT(profile.pass.error, 0);
  EXPECT_GT(profile.pass.mean_ns, 0);
  options.wanted_error = 1;  // of any, as soon as an error is known: from four passes on
  profile = measure_profile(model, options);
  EXPECT_GE(profile.samples, 3);
  EXPECT_LE(profile.samples, 5);
  options.wanted_error = 1e-12;
  options.most_samples = 1000;
  options.longest = std::chrono::milliseconds(1);  // less than 1000 passes take anywhere
  EXPECT_LT(measure_profile(model, options).samples, 1000);
}

TEST(Profiler, MakesFewerPassesOfASlowModel) {
  const Model model = make_model({.name = "mlp", .width = 8, .depth = 1});
  ProfilerOptions options = quick();
  options.warmup = 3;
  options.samples = 1000;
  options.most_time = std::chrono::milliseconds(1);  // less than 1,503 passes take anywhere
  int passes = 0;
  options.progress = [&](int done, int) { passes = done; };
  const profile::Profile profile = measure_profile(model, options);
  EXPECT_GE(profile.samples, 1);
  EXPECT_LT(profile.samples, 1000);
  EXPECT_EQ(passes, 1 + profile.samples + (profile.samples + 1) / 2) << "one to warm up";
  EXPECT_GT(profile.costs.at(1).backward_weight_ns, 0);
  options.samples = 3;
  options.most_time = {};
  EXPECT_EQ(measure_profile(model, options).samples, 3) << "0 is no limit";
}

TEST(Profiler, EndsWhenItIsStopped) {
  const Model model = make_model({.name = "mlp", .width = 8, .depth = 1});
  ProfilerOptions options = quick();
  options.samples = 1'000'000;
  options.concurrency = 2;
  std::atomic<bool> stop{false};
  options.stop = &stop;
  options.progress = [&](int, int) { stop = true; };
  EXPECT_THAT([&] { measure_profile(model, options); },
              Throws<RuntimeError>(Property(&RuntimeError::what, HasSubstr("was stopped"))));
}

TEST(Profiler, WeightsOfNormalisationAreMadeWithTheInputs) {
  ModelBuilder net("m");
  Value x = net.conv2d(net.input({2, 6, 6}), {.channels = 4, .kernel = 3, .name = "conv"});
  x = net.batch_norm2d(x, {.name = "norm"});
  const Model model = net.build(net.linear(net.flatten(x), {.features = 3, .name = "fc"}));
  const profile::Profile profile = measure_profile(model, quick());
  const auto cost = [&](const char* name) {
    return profile.costs[model.graph().find(name).index()];
  };
  EXPECT_GT(cost("norm").backward_ns, 0);
  EXPECT_EQ(cost("norm").backward_weight_ns, 0);
  EXPECT_GT(cost("conv").backward_weight_ns, 0);
  EXPECT_GT(cost("fc").backward_weight_ns, 0);

  ModelBuilder first("m");
  const Model only_weights = first.build(
      first.linear(first.flatten(first.batch_norm2d(first.input({2, 3, 3}))), {.features = 3}));
  const profile::LayerCost norm = measure_profile(only_weights, quick()).costs[0];
  EXPECT_GT(norm.backward_weight_ns, 0) << "nothing else is wanted of the first layer";
  EXPECT_EQ(norm.backward_weight_ns, norm.backward_ns);
}

TEST(Profiler, CoversBranchesSeveralOutputsAndUnusedValues) {
  ModelBuilder net("branches");
  const Value x = net.input({4, 6, 6});
  const std::vector<Value> parts =
      net.split(net.conv2d(x, {.channels = 6, .kernel = 3, .name = "conv"}), 3, "split");
  const Value twice = net.add(parts[0], parts[0], "twice");
  const Value joined = net.concat({twice, net.batch_norm2d(parts[1], {.name = "norm"})}, "joined");
  net.relu(parts[2], "unused");
  const Value logits = net.linear(net.flatten(joined, "flat"), {.features = 3, .name = "fc"});
  const Model model = net.build(std::vector<Value>{logits, twice});
  const profile::Profile profile = measure_profile(model, quick());
  const auto cost = [&](const char* name) {
    return profile.costs[model.graph().find(name).index()];
  };
  EXPECT_EQ(cost("split").output_bytes.size(), 3U);
  EXPECT_EQ(cost("unused").backward_ns, 0) << "nothing flows back from it";
  for (const char* name : {"conv", "split", "twice", "joined", "norm", "flat", "fc"})
    EXPECT_GT(cost(name).backward_ns, 0) << name;
}

TEST(Profiler, GradientsOfInputsAndWeightsOfALargeProductTakeAboutAsLong) {
  ModelBuilder net("m");
  Value x = net.linear(net.input({256}), {.features = 256});
  x = net.linear(x, {.features = 1024, .name = "wide"});
  const Model model = net.build(net.linear(x, {.features = 4}));
  ProfilerOptions options = quick();
  options.batch_size = 256;
  options.samples = 31;  // the machine may be busy with other things
  const profile::LayerCost cost = measure_profile(model, options).costs[1];
  const double share =
      static_cast<double>(cost.backward_weight_ns) / static_cast<double>(cost.backward_ns);
  EXPECT_GT(share, 0.2);
  EXPECT_LT(share, 0.8);
}

TEST(Profiler, TimesAreMeansWithoutStalls) {
  EXPECT_EQ(detail::summarize({10, 10, 14, 30, 11}).mean, 15);
  EXPECT_EQ(detail::summarize({10, 1'000'000, 10, 10}).mean, 15)
      << "the stall counts as three medians";
  EXPECT_EQ(detail::summarize({10, 40, 20, 30}).spread, 20);
  EXPECT_EQ(detail::summarize({0, 0, 0}).mean, 0);
  EXPECT_EQ(detail::summarize({7}).mean, 7);
  EXPECT_EQ(detail::summarize({10, 100}).mean, 55) << "a layer may have two speeds";
}

TEST(Profiler, CountsTiedWeights) {
  const Model model = make_model({.name = "tied_mlp", .width = 8, .depth = 1});
  const profile::Profile profile = measure_profile(model, quick());
  const LayerId decode = model.graph().find("decode1");
  EXPECT_EQ(profile.costs[decode.index()].tied_bytes, (std::vector<int64_t>{4 * 784 * 8}));
  std::vector<LayerId> all;
  for (int i = 0; i < model.graph().num_layers(); ++i) all.push_back(LayerId{i});
  EXPECT_EQ(profile::weight_bytes_of(profile, all), 4 * model.parameter_count());
}

TEST(Profiler, ALayerBeforeAllWeightsHasNoBackward) {
  ModelBuilder net("m");
  const Value x = net.flatten(net.input({2, 3}), "flat");
  const profile::Profile profile =
      measure_profile(net.build(net.linear(x, {.features = 2})), quick());
  EXPECT_EQ(profile.costs[0].backward_ns, 0);
  EXPECT_GT(profile.costs[1].backward_ns, 0);
}

TEST(Profiler, AcceptsOutputsThatAreNotLogits) {
  ModelBuilder net("m");
  const Model model = net.build(net.conv2d(net.input({1, 4, 4}), {.channels = 2, .kernel = 3}));
  EXPECT_GT(measure_profile(model, quick()).costs[0].backward_ns, 0);
}

TEST(Profiler, RunsCopiesAtTheSameTimeAndKeepsTheThreadCount) {
  const int before = at::get_num_threads();
  ProfilerOptions options = quick();
  options.concurrency = 2;
  options.threads = 2;
  options.optimizer.kind = OptimizerKind::Adam;
  const profile::Profile profile =
      measure_profile(make_model({.name = "mlp", .width = 8, .depth = 1}), options);
  EXPECT_EQ(profile.costs.size(), 4U);
  EXPECT_THAT(profile.device, HasSubstr("2 threads"));
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(Profiler, NamesTheLayerThatFails) {
  ModelBuilder net("m");
  const Value x = net.linear(net.input({3}), {.features = 3});
  const Model model = net.build(net.apply(std::make_shared<FailsLater>(), {x}, "culprit"));
  ProfilerOptions options = quick();
  options.concurrency = 2;
  EXPECT_THAT(
      [&] { measure_profile(model, options); },
      Throws<RuntimeError>(Property(&RuntimeError::what, HasSubstr("forward of layer 'culprit'"))));
}

TEST(Profiler, ProgressMayThrow) {
  ProfilerOptions options = quick();
  options.progress = [](int, int) { throw ConfigError("enough"); };
  EXPECT_THROW(measure_profile(make_model({.name = "mlp", .width = 8, .depth = 1}), options),
               ConfigError);
}

TEST(Profiler, RefusesOptionsOutOfRange) {
  const Model model = make_model({.name = "mlp", .width = 8, .depth = 1});
  const auto with = [&](auto change) {
    ProfilerOptions options = quick();
    change(options);
    return [&model, options] { measure_profile(model, options); };
  };
  EXPECT_THROW(with([](ProfilerOptions& o) { o.batch_size = 0; })(), ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.batch_size = 1'000'000'000'000; })(), ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.samples = 0; })(), ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.warmup = -1; })(), ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.threads = 0; })(), ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.concurrency = 0; })(), ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.least_time = std::chrono::milliseconds::max(); })(),
               ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.most_samples = -1; })(), ConfigError);
  EXPECT_THROW(with([](ProfilerOptions& o) { o.optimizer.momentum = 1; })(), ConfigError);
}

TEST(MemoryMeter, CountsWhatIsKept) {
  const at::Tensor earlier = at::zeros({1000});
  const detail::MemoryMeter meter;
  const at::Tensor kept = at::zeros({100});
  at::zeros({5000});
  EXPECT_EQ(meter.bytes(), 400);
}

}  // namespace
}  // namespace penstock::model
