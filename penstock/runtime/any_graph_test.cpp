// Any graph can be trained in a pipeline: tensors without gradients, several tensors per edge,
// values for near and far stages at once, mini-batches of changing size and shape, weights that
// stages share.
#include <torch/csrc/autograd/autograd.h>

#include "penstock/model/loss.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/test_support.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;

/// A layer made of a function.
class Function : public model::Layer {
 public:
  using Code = std::function<model::Tensors(model::TensorSpan weights, model::TensorSpan inputs)>;
  Function(std::vector<model::Shape> outputs, Code code,
           std::vector<model::ParameterSpec> parameters = {})
      : outputs_(std::move(outputs)), code_(std::move(code)), parameters_(std::move(parameters)) {}
  std::string kind() const override { return "function"; }
  int num_outputs() const override { return static_cast<int>(outputs_.size()); }
  std::vector<model::ParameterSpec> parameters() const override { return parameters_; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>&) const override {
    return outputs_;
  }
  model::Tensors forward(model::TensorSpan w, model::MutableTensorSpan, model::TensorSpan x,
                         const model::ForwardContext&) const override {
    return code_(w, x);
  }

 private:
  std::vector<model::Shape> outputs_;
  Code code_;
  std::vector<model::ParameterSpec> parameters_;
};

std::vector<model::Value> apply(model::ModelBuilder& net, std::vector<model::Shape> outputs,
                                const std::vector<model::Value>& inputs, Function::Code code,
                                std::vector<model::ParameterSpec> parameters = {}) {
  return net.apply(
      std::make_shared<Function>(std::move(outputs), std::move(code), std::move(parameters)),
      inputs);
}

/// Every cut into stages of the kinds that run them differently, against one worker.
void expect_bits_for_every_cut(const model::Model& model, Case setup) {
  setup.samples = 12 * 3 + 5;
  setup.parts = 4;
  const Trained serial = train(model, setup);
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1,
                              Strategy::Interleaved, Strategy::ZbV}) {
    for (const int stages : {2, 3, 4, 6}) {
      if (stages % 2 != 0 && (kind == Strategy::Interleaved || kind == Strategy::ZbV)) continue;
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(std::string(to_string(kind)) + " " + std::to_string(stages) +
                     (recompute ? " recomputing" : ""));
        Case cut_up = setup;
        cut_up.kind = kind;
        cut_up.replicas = std::vector<int>(static_cast<size_t>(stages), 1);
        cut_up.recompute = std::vector<bool>(static_cast<size_t>(stages), recompute);
        expect_same_bits(serial, train(model, cut_up));
      }
    }
  }
}

TEST(AnyGraph, IntegersAndMasksTravelWithoutGradients) {
  model::ModelBuilder net("masked");
  const model::Value input = net.input({8});
  // The bucket of each sample, computed in an early layer and used in a much later one; a mask made
  // from trained numbers; a float that needs no gradient.
  const model::Value bucket = apply(net, {{}}, {input}, [](auto, auto x) {
                                return model::Tensors{x[0].argmax(1)};
                              }).front();
  model::Value x = net.tanh(net.linear(input, {.features = 12}));
  const auto masks = apply(net, {{12}, {12}}, {x}, [](auto, auto v) {
    return model::Tensors{v[0].gt(0.1), v[0].detach().abs()};
  });
  x = net.tanh(net.linear(x, {.features = 12}));
  x = apply(net, {{12}}, {x, masks[0], masks[1]}, [](auto, auto v) {
        return model::Tensors{at::where(v[1], v[0], v[0] * v[2])};
      }).front();
  x = net.tanh(net.linear(x, {.features = 12}));
  const model::Value found =
      apply(net, {{12}}, {bucket},
            [](auto w, auto v) { return model::Tensors{w[0].index_select(0, v[0])}; },
            {{"table", {8, 12}, model::Init::uniform(0.5)}})
          .front();
  x = net.add(x, found);
  x = net.tanh(net.linear(x, {.features = 12}));
  expect_bits_for_every_cut(net.build(net.linear(x, {.features = 4})), {});
}

TEST(AnyGraph, SeveralTensorsGoToTheNextStageAndToFarOnes) {
  model::ModelBuilder net("bundle");
  std::vector<model::Value> lanes =
      net.split(net.tanh(net.linear(net.input({8}), {.features = 12})), 3);
  const std::vector<model::Value> first = lanes;
  for (int round = 0; round < 4; ++round) {
    std::vector<model::Value> next;
    for (size_t i = 0; i < 3; ++i)
      next.push_back(net.tanh(net.add(net.linear(lanes[i], {.features = 4}), lanes[(i + 1) % 3])));
    lanes = next;
  }
  expect_bits_for_every_cut(
      net.build(net.linear(net.concat({lanes[0], first[2], lanes[1], lanes[2], first[0], first[1]}),
                           {.features = 4})),
      {});
}

TEST(AnyGraph, AnOutputThatNobodyReadsHasNoGradient) {
  model::ModelBuilder net("unread");
  const model::Value x = net.tanh(net.linear(net.input({8}), {.features = 12}));
  const auto parts = net.split(net.tanh(net.linear(x, {.features = 12})), 3);
  net.linear(parts[2], {.features = 5, .name = "nowhere"});
  expect_bits_for_every_cut(
      net.build(net.linear(net.tanh(net.linear(net.concat({parts[0], parts[1]}), {.features = 12})),
                           {.features = 4})),
      {});
}

/// Image sizes and numbers of samples that change from mini-batch to mini-batch, and with the
/// micro-batch.
class ChangingBatches : public BatchSource {
 public:
  explicit ChangingBatches(int64_t parts) : parts_(parts) {}
  model::Tensors inputs(MicroBatchId b) const override {
    const int64_t size = 4 + b.value / parts_ % 3;
    return {at::linspace(-1, 1, samples(b) * size * (size + 1))
                .mul(13.0 + static_cast<double>(b.value))
                .sin()
                .view({samples(b), 1, size, size + 1})};
  }
  at::Tensor targets(MicroBatchId b) const override {
    return at::arange(samples(b), at::kLong) % 3;
  }
  int64_t samples(MicroBatchId b) const override {
    return 2 + (b.value / parts_ + b.value % parts_) % 4;
  }
  int64_t mini_batch_samples(MiniBatchId t) const override {
    int64_t sum = 0;
    for (int64_t k = 0; k < parts_; ++k) sum += samples(MicroBatchId{t.value * parts_ + k});
    return sum;
  }
  uint64_t seed(MicroBatchId b) const override { return static_cast<uint64_t>(b.value); }

 private:
  int64_t parts_;
};

TEST(AnyGraph, BatchesChangeTheirSizeAndShape) {
  model::ModelBuilder net("sizes");
  model::Value x = net.input({1, 4, 5});
  x = net.relu(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1}));
  const model::Value skip = net.adaptive_avg_pool2d(x, 2);
  x = net.relu(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1}));
  x = net.add(net.adaptive_avg_pool2d(x, 2), skip);
  const model::Model model = net.build(net.linear(net.flatten(x), {.features = 3}));
  const auto optimizer = model::make_optimizer({});
  const ChangingBatches batches(4);
  std::vector<Trained> results;
  for (const auto& [kind, stages] : std::vector<std::pair<Strategy, int>>{
           {Strategy::Serial, 1}, {Strategy::OneFOneBFlush, 3}, {Strategy::ZbV, 4}}) {
    const Case setup{
        .kind = kind, .replicas = std::vector<int>(static_cast<size_t>(stages), 1), .parts = 4};
    Pipeline pipeline(model, cut(model, stages), setup.replicas, *optimizer,
                      {.seed = 3, .worker_of_replica = shape_of(setup, 24).worker_of_replica});
    Trained& trained = results.emplace_back();
    trained.run = pipeline.run(lower(generate(kind, shape_of(setup, 24)), pipeline.links()),
                               batches, {.learning_rate = [](int64_t) { return 0.1; }});
    for (const auto& stats : trained.run.mini_batches) trained.losses.push_back(stats.mean_loss());
    trained.layers = pipeline.snapshot();
    EXPECT_EQ(trained.losses.size(), 6u);
    expect_same_bits(results.front(), trained);
  }
}

/// encode1, encode2 and their transposes, and a weight that three layers use.
model::Model tied_model() {
  model::ModelBuilder net("tied");
  model::Value x = net.input({8});
  x = net.tanh(net.linear(x, {.features = 12, .name = "encode1"}));
  x = net.tanh(net.linear(x, {.features = 10, .name = "encode2"}));
  for (int i = 1; i <= 3; ++i)
    x = net.tanh(net.linear(x, {.features = 10, .name = "again" + std::to_string(i)}));
  x = net.tanh(net.linear(x, {.features = 12, .name = "decode2", .transposed = true}));
  x = net.tanh(net.linear(x, {.features = 8, .name = "decode1", .transposed = true}));
  net.tie("decode2", "weight", "encode2", "weight");
  net.tie("decode1", "weight", "encode1", "weight");
  net.tie("again2", "weight", "again1", "weight");
  net.tie("again3", "weight", "again1", "weight");
  return net.build(net.linear(x, {.features = 4, .name = "head"}));
}

TEST(AnyGraph, TiedWeightsAreTrainedOnTheSumOfTheirGradientsForAnyCut) {
  const model::Model model = tied_model();
  Case setup{.norm = true};
  setup.groups = 2;
  expect_bits_for_every_cut(model, setup);
  // Without a norm one stage sums its own copies alone.
  Case plain{.parts = 4, .samples = 12 * 3 + 5, .groups = 2};
  const Trained serial = train(model, plain);
  plain.kind = Strategy::GPipe;
  plain.replicas = {2, 1, 2};
  plain.norm = true;
  const Trained cut_up = train(model, plain);
  EXPECT_EQ(serial.losses, cut_up.losses);
  EXPECT_EQ(weight_difference(serial.layers, cut_up.layers), 0.0);
  plain.kind = Strategy::Chimera;
  plain.replicas = {2, 2, 2, 2};
  EXPECT_EQ(serial.losses, train(model, plain).losses);
}

TEST(AnyGraph, TiedWeightsAreOneWeight) {
  const model::Model model = tied_model();
  const Trained trained = train(model, {.kind = Strategy::GPipe,
                                        .replicas = {1, 1, 1},
                                        .parts = 2,
                                        .norm = true,
                                        .max_grad_norm = 0.2});
  for (const graph::TieGroup& group : graph::tie_groups(model.graph())) {
    const LayerSnapshot& owner = trained.layers[group.front().layer.index()];
    for (const graph::ParameterRef& copy : group) {
      const LayerSnapshot& layer = trained.layers[copy.layer.index()];
      EXPECT_TRUE(layer.weights[static_cast<size_t>(copy.parameter)].equal(
          owner.weights[static_cast<size_t>(group.front().parameter)]));
    }
  }
  // The sum of the uses' gradients, by autograd over one leaf: plain SGD, one step.
  Case one{.samples = 12, .learning_rate = 1.0};
  one.optimizer = {.kind = model::OptimizerKind::Sgd, .momentum = 0};
  const StageModule whole(model, cut(model, 1), StageId{0});
  model::Tensors leaves;
  std::map<graph::ParameterRef, at::Tensor> by_owner;
  for (const LayerId id : whole.layers()) {
    const model::Tensors initial = model.initial_weights(id, 3);
    for (size_t p = 0; p < initial.size(); ++p) {
      const graph::ParameterRef owner = model.graph().owner({id, static_cast<int>(p)});
      leaves.push_back(
          by_owner.try_emplace(owner, initial[p].clone().requires_grad_(true)).first->second);
    }
  }
  const RandomBatches batches(12, 12, 1, 8, 4, {8});
  model::Tensors buffers;
  const at::Tensor logits =
      whole.forward(leaves, buffers, batches.inputs(MicroBatchId{0}), {}).front();
  const at::Tensor loss =
      model::cross_entropy(logits, batches.targets(MicroBatchId{0}), {12, 12}).scaled_loss;
  const Trained stepped = train(model, one);
  for (const auto& [owner, leaf] : by_owner) {
    const at::Tensor expected =
        leaf.detach() - torch::autograd::grad({loss}, {leaf}, {}, /*retain_graph=*/true)[0];
    const at::Tensor& actual =
        stepped.layers[owner.layer.index()].weights[static_cast<size_t>(owner.parameter)];
    EXPECT_TRUE(at::allclose(actual, expected, 1e-5, 1e-6))
        << model.graph().layer(owner.layer).name;
  }
}

TEST(AnyGraph, TiedStagesRefuseSchedulesWithoutNorm) {
  const model::Model model = tied_model();
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(24, 12, 1, 8, 4);
  Pipeline pipeline(model, cut(model, 2), {1, 1}, *optimizer, {});
  EXPECT_TRUE(pipeline.needs_norm());
  EXPECT_FALSE(Pipeline(model, cut(model, 1), {1}, *optimizer, {}).needs_norm());
  const RunOptions options{.learning_rate = [](int64_t) { return 0.1; }};
  schedule::ScheduleShape shape{.replicas = {1, 1}, .micro_batches = 2};
  EXPECT_THROW(
      pipeline.run(lower(generate(Strategy::GPipe, shape), pipeline.links()), batches, options),
      ConfigError);
  shape.policy = schedule::WeightPolicy::Stash;
  shape.global_norm = true;
  EXPECT_THROW(
      pipeline.run(lower(generate(Strategy::OneFOneB, shape), pipeline.links()), batches, options),
      ConfigError);
  shape.policy = schedule::WeightPolicy::Flush;
  EXPECT_NO_THROW(
      pipeline.run(lower(generate(Strategy::GPipe, shape), pipeline.links()), batches, options));
}

}  // namespace
}  // namespace penstock::runtime::testing
