// Split backward: I and W together run exactly the operations of B, none twice, and make the same
// gradients bit for bit.
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "penstock/model/layers/blocked_product.h"
#include "penstock/model/sequence_builder.h"
#include "penstock/model/zoo.h"
#include "penstock/runtime/layer_tape.h"
#include "penstock/runtime/stage_tape.h"
#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

/// Counts operators by name while it exists; a convolution's backward counts once per gradient that
/// it is asked for.
class OperatorCount {
 public:
  OperatorCount() {
    current_ = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) {
          current_->record(function);
          return std::unique_ptr<at::ObserverContext>();
        })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCount() { at::removeCallback(handle_); }

  /// Matrix products, convolutions, normalisations and elementwise backward operators.
  std::map<std::string, int> counts;

 private:
  void record(const at::RecordFunction& function) {
    const std::string name = function.name();
    if (name == "aten::convolution_backward") {
      const auto mask = function.inputs().back().toBoolList();
      const char* parts[] = {" input", " weight", " bias"};
      for (size_t i = 0; i < 3; ++i) {
        if (mask[i]) ++counts[name + parts[i]];
      }
    } else if (name == "aten::_slow_conv2d_backward") {
      // An implementation of convolution_backward, which is counted above.
    } else if (name == "aten::mm" || name == "aten::bmm" || name == "aten::addmm" ||
               name.find("backward") != std::string::npos) {
      ++counts[name];
    }
  }

  static inline OperatorCount* current_ = nullptr;
  at::CallbackHandle handle_{};
};

/// The first stage of a model, or the whole model, alone.
struct Bench {
  explicit Bench(model::Model m, const std::vector<int>& stage_of = {}) : model(std::move(m)) {
    std::vector<StageId> stages;
    for (int l = 0; l < model.graph().num_layers(); ++l)
      stages.push_back(StageId{stage_of.empty() ? 0 : stage_of[static_cast<size_t>(l)]});
    module = std::make_unique<StageModule>(model, stages, StageId{0});
    for (const LayerId id : module->layers()) {
      for (const at::Tensor& weight : model.initial_weights(id, 5))
        weights.push_back(weight.requires_grad_(true));
      for (const at::Tensor& buffer : model.initial_buffers(id)) buffers.push_back(buffer);
    }
    model::Shape shape = model.input_shapes().front();
    shape.insert(shape.begin(), 4);
    int64_t numbers = 1;
    for (const int64_t extent : shape) numbers *= extent;
    input = at::linspace(-1, 1, numbers).sin().view(shape);
  }
  /// Gradients of the weights, by B or by I and W; `count` sees the backward pass only.
  model::Tensors gradients(bool split, std::map<std::string, int>* count = nullptr,
                           std::map<std::string, int>* count_weights = nullptr) {
    const SegmentEnds ends = split ? cut_everywhere(*module) : cut_by_weights(*module, INT64_MAX);
    StageTape tape(*module, ends);
    const model::Tensors outputs =
        tape.forward(weights, buffers, model::Tensors{input}, {.training = true, .seed = 9});
    if (!module->model_outputs().empty())
      tape.loss(model::make_loss({}), outputs[module->model_outputs().front()],
                at::arange(4, at::kLong) % 3, {8, 8});
    ValueGradients values(*module);
    for (const StageId target : module->target_stages()) {
      model::Tensors parts;
      for (const GradientPlace& place : module->gradients_from(target)) {
        const size_t position = static_cast<size_t>(&place - module->gradients_from(target).data());
        parts.push_back(outputs[std::min(position, outputs.size() - 1)].cos());
      }
      values.receive(target, parts);
    }
    OperatorCount counter;
    model::Tensors made;
    if (split) {
      tape.backward_inputs(values);
      if (count != nullptr) *count = counter.counts;
      counter.counts.clear();
      made = tape.backward_weights();
      if (count_weights != nullptr) *count_weights = counter.counts;
    } else {
      made = tape.backward(values);
      if (count != nullptr) *count = counter.counts;
    }
    return made;
  }

  model::Model model;
  std::unique_ptr<StageModule> module;
  model::Tensors weights;
  model::Tensors buffers;
  at::Tensor input;
};

void expect_equal(const model::Tensors& a, const model::Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      EXPECT_TRUE(a[i].equal(b[i])) << i;
    }
  }
}

std::map<std::string, int> sum(std::map<std::string, int> a, const std::map<std::string, int>& b) {
  for (const auto& [name, count] : b) a[name] += count;
  return a;
}

/// Returns the operators of I and of W.
std::pair<std::map<std::string, int>, std::map<std::string, int>> expect_same_work(Bench& bench) {
  std::map<std::string, int> whole, inputs, weights;
  const model::Tensors expected = bench.gradients(false, &whole);
  expect_equal(bench.gradients(true, &inputs, &weights), expected);
  EXPECT_EQ(sum(inputs, weights), whole);
  EXPECT_FALSE(whole.empty());
  return {inputs, weights};
}

model::Model perceptron() {
  model::ModelBuilder net("perceptron");
  model::Value x = net.input({6});
  x = net.tanh(net.linear(x, {.features = 8}));
  x = net.relu(net.linear(x, {.features = 8}));
  return net.build(net.linear(x, {.features = 3}));
}

TEST(Split, LinearLayersDoEachProductOnce) {
  Bench bench(perceptron());
  const auto [inputs, weights] = expect_same_work(bench);
  // Three weights; inputs of the second and third layer.
  EXPECT_EQ(inputs.at("aten::mm"), 2);
  EXPECT_EQ(weights.at("aten::mm"), 3);
}

TEST(Split, ConvolutionsDoEachPartOnceAndTheFirstLayerNoInput) {
  model::ModelBuilder net("convolutions");
  model::Value x = net.input({2, 6, 6});
  x = net.relu(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1}));
  x = net.relu(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1, .groups = 2}));
  x = net.max_pool2d(net.conv2d(x, {.channels = 3, .kernel = 3, .bias = false}), {.kernel = 2});
  Bench bench(net.build(net.linear(net.flatten(x), {.features = 3})));
  const auto [inputs, weights] = expect_same_work(bench);
  EXPECT_EQ(inputs.at("aten::convolution_backward input"), 2);
  EXPECT_FALSE(inputs.contains("aten::convolution_backward weight"));
  EXPECT_EQ(weights.at("aten::convolution_backward weight"), 3);
  EXPECT_EQ(weights.at("aten::convolution_backward bias"), 2);
  EXPECT_FALSE(weights.contains("aten::convolution_backward input"));
  EXPECT_FALSE(weights.contains("aten::max_pool2d_with_indices_backward"));
}

TEST(Split, AStageInTheMiddleOfTheModelDoesNothingForItsFirstLayersInput) {
  Bench bench(perceptron(), {0, 0, 0, 1, 1});
  const auto [inputs, weights] = expect_same_work(bench);
  EXPECT_EQ(inputs.at("aten::mm"), 1);
  EXPECT_EQ(weights.at("aten::mm"), 2);
}

TEST(Split, NormalisationIsNotDoneTwice) {
  model::ModelBuilder net("normed");
  model::Value x = net.input({2, 4, 4});
  const model::Value skip =
      net.batch_norm2d(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1}));
  x = net.relu(
      net.add(net.batch_norm2d(net.conv2d(net.relu(skip), {.channels = 4, .kernel = 1})), skip));
  Bench bench(net.build(net.linear(net.flatten(x), {.features = 3})));
  const auto [inputs, weights] = expect_same_work(bench);
  EXPECT_EQ(inputs.at("aten::native_batch_norm_backward"), 2);
  EXPECT_FALSE(weights.contains("aten::native_batch_norm_backward"));
}

TEST(Split, LstmsMakeTheGradientsOfTheirWeightsAtOnceAndLater) {
  model::SequenceBuilder net("recurrent");
  model::Value x = net.lstm(net.input({5, 3}), {.features = 4});
  x = net.lstm(x, {.features = 4, .weight_dropout = 0.3});
  Bench bench(net.build(net.linear(net.flatten(x), {.features = 3})));
  const auto [inputs, weights] = expect_same_work(bench);
  // The head's input and the second layer's; its loop has 4 products. W has two products of the
  // first layer, whose loop is there, too, two of the second one and the head's.
  EXPECT_EQ(inputs.at("aten::mm"), 2);
  EXPECT_EQ(inputs.at("aten::addmm"), 4);
  EXPECT_EQ(weights.at("aten::mm"), 5);
  EXPECT_EQ(weights.at("aten::addmm"), 4);
}

/// Two matrix products with an activation between them, a scale that is a function of a weight, and
/// a bias.
class Composite : public model::Layer {
 public:
  explicit Composite(bool shared) : shared_(shared) {}
  std::string kind() const override { return "composite"; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"first", {8, 8}, model::Init::uniform(0.4)},
            {"second", {8, 8}, model::Init::uniform(0.4)},
            {"scale", {8}, model::Init::uniform(0.5)},
            {"bias", {8}, model::Init::uniform(0.5)}};
  }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan w, model::MutableTensorSpan, model::TensorSpan x,
                         const model::ForwardContext&) const override {
    const at::Tensor hidden = at::tanh(at::mm(x[0], w[0]));
    const at::Tensor out = at::mm(hidden, shared_ ? w[0] : w[1]);
    return {out * at::exp(w[2]) + w[3] + x[0]};
  }

 private:
  bool shared_;
};

model::Model composite(bool shared) {
  model::ModelBuilder net("composite");
  model::Value x = net.tanh(net.linear(net.input({8}), {.features = 8}));
  x = net.apply(std::make_shared<Composite>(shared), {x}, "middle").front();
  return net.build(net.linear(x, {.features = 3}));
}

TEST(Split, AnOperationInsideALayerIsNotRepeatedForTheWeightsBeforeIt) {
  Bench bench(composite(false));
  const auto [inputs, weights] = expect_same_work(bench);
  EXPECT_EQ(inputs.at("aten::mm"), 3);   // head, second, first
  EXPECT_EQ(weights.at("aten::mm"), 4);  // and the linear layer before them
  EXPECT_FALSE(weights.contains("aten::tanh_backward"));
}

TEST(Split, AWeightThatALayerUsesTwiceGetsItsGradientInI) {
  Bench bench(composite(true));
  const auto [inputs, weights] = expect_same_work(bench);
  EXPECT_EQ(inputs.at("aten::mm"), 5);
  EXPECT_EQ(weights.at("aten::mm"), 2);
}

/// Activations between two matrix products; stores a reference to the memory of the first product's
/// result.
class Between : public model::Layer {
 public:
  std::string kind() const override { return "between"; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"first", {8, 8}, model::Init::uniform(0.4)},
            {"second", {8, 8}, model::Init::uniform(0.4)}};
  }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan w, model::MutableTensorSpan, model::TensorSpan x,
                         const model::ForwardContext&) const override {
    const at::Tensor product = at::mm(x[0], w[0]);
    product_ = product.storage().getWeakStorageImpl();
    // the sine's backward pass needs the product; no later operation's backward pass does
    return {at::mm(at::exp(at::sin(product)), w[1])};
  }
  bool holds_product() const { return !product_->expired(); }

 private:
  mutable std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> product_;
};

TEST(Split, AfterTheInputsALayerKeepsOnlyTheOperandsOfW) {
  const auto layer = std::make_shared<Between>();
  model::ModelBuilder net("between");
  const model::Value x = net.tanh(net.linear(net.input({8}), {.features = 8}));
  Bench bench(net.build(net.linear(net.apply(layer, {x}, "between").front(), {.features = 3})));
  expect_same_work(bench);
  const SegmentEnds ends = cut_everywhere(*bench.module);
  StageTape tape(*bench.module, ends);
  const model::Tensors outputs = tape.forward(
      bench.weights, bench.buffers, model::Tensors{bench.input}, {.training = true, .seed = 9});
  tape.loss(model::make_loss({}), outputs[bench.module->model_outputs().front()],
            at::arange(4, at::kLong) % 3, {8, 8});
  EXPECT_TRUE(layer->holds_product());
  ValueGradients values(*bench.module);
  tape.backward_inputs(values);
  EXPECT_FALSE(layer->holds_product());
  expect_equal(tape.backward_weights(), bench.gradients(false));
}

/// Returns its input, a weight and a constant unchanged.
class PassOn : public model::Layer {
 public:
  std::string kind() const override { return "pass_on"; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"shift", {1, 8}, model::Init::uniform(0.4)}};
  }
  int num_outputs() const override { return 3; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return {inputs[0], inputs[0], {1}};
  }
  model::Tensors forward(model::TensorSpan w, model::MutableTensorSpan, model::TensorSpan x,
                         const model::ForwardContext&) const override {
    return {x[0], w[0].expand_as(x[0]), at::ones({x[0].size(0), 1})};
  }
};

TEST(Split, ALayerMayReturnItsInputAndItsWeight) {
  model::ModelBuilder net("pass_on");
  const model::Value x = net.tanh(net.linear(net.input({8}), {.features = 8}));
  const auto passed = net.apply(std::make_shared<PassOn>(), {x}, "pass");
  Bench bench(net.build(
      net.linear(net.concat({net.add(passed[0], passed[1]), passed[2]}), {.features = 3})));
  expect_same_work(bench);
  // Compared with one graph for the whole model.
  const at::AutoGradMode with_graph(true);
  const model::Tensors outputs = bench.module->forward(
      bench.weights, bench.buffers, model::Tensors{bench.input}, {.training = true, .seed = 9});
  const at::Tensor loss =
      model::cross_entropy(outputs[0], at::arange(4, at::kLong) % 3, {8, 8}).scaled_loss;
  expect_equal(bench.gradients(true), torch::autograd::grad({loss}, bench.weights));
}

/// Its output is a weight, in the middle of a chain of layers.
class GivesWeight : public model::Layer {
 public:
  std::string kind() const override { return "gives_weight"; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"value", {4, 8}, model::Init::uniform(0.4)}};
  }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan w, model::MutableTensorSpan, model::TensorSpan,
                         const model::ForwardContext&) const override {
    return {w[0]};
  }
};

TEST(Split, ALayersOutputMayBeItsWeight) {
  model::ModelBuilder net("gives_weight");
  const model::Value x = net.tanh(net.linear(net.input({8}), {.features = 8}));
  const model::Value given = net.apply(std::make_shared<GivesWeight>(), {x}, "gives").front();
  Bench bench(net.build(net.linear(net.tanh(net.add(net.tanh(given), x)), {.features = 3})));
  expect_same_work(bench);
  const model::Tensors gradients = bench.gradients(false);
  for (const at::Tensor& gradient : gradients) {
    ASSERT_TRUE(gradient.defined());
    EXPECT_GT(gradient.abs().max().item<float>(), 0.0f);
  }
}

TEST(Split, WholeNetworksDoEachOperationOnce) {
  for (const char* name : {"lenet5", "vgg_small", "resnet18"}) {
    SCOPED_TRACE(name);
    Bench bench(
        model::make_model({.name = name,
                           .input_shape = std::string(name) == "resnet18" ? model::Shape{3, 32, 32}
                                                                          : model::Shape{}}));
    expect_same_work(bench);
  }
}

TEST(Segments, CallsAreCutWhereGradientsOfWeightsWouldBeLarge) {
  model::ModelBuilder net("chain");
  model::Value x = net.input({8});
  for (int i = 0; i < 4; ++i) x = net.tanh(net.linear(x, {.features = 8}));
  Bench bench(net.build(x));
  // 288 bytes of weights in every second layer; the others go with the layer behind them.
  EXPECT_EQ(cut_by_weights(*bench.module, INT64_MAX), (SegmentEnds{7, 7, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(cut_by_weights(*bench.module, 2 * 288), (SegmentEnds{2, 2, 2, 7, 7, 7, 7, 7}));
  EXPECT_EQ(cut_by_weights(*bench.module, 2 * 288 - 1), (SegmentEnds{0, 2, 2, 4, 4, 7, 7, 7}));
  EXPECT_EQ(cut_by_weights(*bench.module, 1), (SegmentEnds{0, 2, 2, 4, 4, 7, 7, 7}));
}

TEST(Segments, GradientsOfEachBucketComeWhileTheBackwardPassGoesOn) {
  model::ModelBuilder net("chain");
  model::Value x = net.input({8});
  for (int i = 0; i < 3; ++i) x = net.tanh(net.linear(x, {.features = 8}));
  Bench bench(net.build(net.linear(x, {.features = 3})));
  // Two weights per layer; the second and the third layer share a bucket.
  const SegmentEnds ends = cut_between_buckets(*bench.module, {2, 6, 8});
  StageTape tape(*bench.module, ends);
  const model::Tensors outputs = tape.forward(
      bench.weights, bench.buffers, model::Tensors{bench.input}, {.training = true, .seed = 9});
  tape.loss(model::make_loss({}), outputs[bench.module->model_outputs().front()],
            at::arange(4, at::kLong) % 3, {8, 8});
  ValueGradients values(*bench.module);
  std::vector<std::vector<size_t>> made;
  const model::Tensors gradients = tape.backward(
      values, [&](const std::vector<size_t>& places, Tensors&) { made.push_back(places); });
  EXPECT_EQ(made, (std::vector<std::vector<size_t>>{{6, 7}, {2, 3, 4, 5}, {0, 1}}));
  expect_equal(gradients, bench.gradients(false));
}

TEST(LayerTape, LargeProductsMakeTheGradientsOfTheirWeightsLater) {
  if (!model::detail::has_blocked_product()) GTEST_SKIP() << "no oneDNN product in this libtorch";
  const at::AutoGradMode with_graph(true);
  const std::vector<at::Tensor> weights{at::arange(64, at::kFloat).view({4, 16}).requires_grad_(),
                                        at::ones({4}).requires_grad_()};
  const at::Tensor input = at::arange(128, at::kFloat).view({8, 16});
  LayerTape tape;
  const at::Tensor entered = tape.enter(input, true);
  tape.use(weights);
  tape.leave(
      std::vector<at::Tensor>{model::detail::blocked_linear(entered, weights[0], weights[1])});
  const at::Tensor ones = at::ones({8, 4});
  const LayerTape::Gradients first = tape.backward_inputs({ones});
  EXPECT_TRUE(at::allclose(first.inputs[0], ones.mm(weights[0].detach())));
  EXPECT_FALSE(first.weights[0].defined() || first.weights[1].defined());
  const std::vector<at::Tensor> later = tape.backward_weights();
  EXPECT_TRUE(at::allclose(later[0], ones.t().mm(input)));
  EXPECT_TRUE(at::allclose(later[1], at::full({4}, 8.0)));
}

TEST(LayerTape, FreesTheGradientOfAnOutputOnceItHasBeenRead) {
  constexpr int64_t kNumbers = 1 << 15;  // less would not be worth it
  const at::AutoGradMode with_graph(true);
  LayerTape tape;
  const at::Tensor entered = tape.enter(at::ones({kNumbers}), true);
  const at::Tensor middle = entered.relu();
  std::vector<at::Tensor> gradients{at::ones({kNumbers}), at::ones({kNumbers})};
  const c10::weak_intrusive_ptr<c10::TensorImpl> first(gradients[0].getIntrusivePtr());
  const c10::weak_intrusive_ptr<c10::TensorImpl> second(gradients[1].getIntrusivePtr());
  bool were_there = true;
  middle.register_hook([&](const at::Tensor& gradient) {
    were_there = !first.expired() || !second.expired();
    return gradient;
  });
  const std::vector<at::Tensor> outputs{middle * middle, middle.sin()};
  tape.leave(outputs);
  const LayerTape::Gradients made = tape.backward(std::move(gradients));
  EXPECT_FALSE(were_there) << "both were read before the gradient of the middle was complete";
  EXPECT_TRUE(at::allclose(made.inputs.front(), at::full({kNumbers}, 2 + std::cos(1.0))));
}

}  // namespace
}  // namespace penstock::runtime::testing
