// Synchronous strategies give the losses and weights of one-worker training with the same
// mini-batches.
#include <array>
#include <set>
#include <thread>

#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;

void expect_equals_serial(const model::Model& model, Case setup) {
  const Trained parallel = train(model, setup);
  setup.kind = Strategy::Serial;
  setup.replicas = {1};
  setup.policy = WeightPolicy::Flush;
  setup.parts = 1;
  const Trained serial = train(model, setup);
  ASSERT_EQ(serial.losses.size(), parallel.losses.size());
  EXPECT_LT(loss_difference(serial.losses, parallel.losses), kTolerance);
  EXPECT_LT(weight_difference(serial.layers, parallel.layers), kTolerance);
}

TEST(Synchronous, TheReferenceItselfLearns) {
  const Trained serial = train(skip_model(), {.samples = 12 * 60});
  EXPECT_LT(serial.losses.back(), 0.7 * serial.losses.front());
}

TEST(Synchronous, WorkersKeepTheirThreadsFromRunToRun) {
  const Case setup{.kind = Strategy::OneFOneBFlush, .replicas = {1, 1}, .parts = 2};
  const model::Model model = skip_model();
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  Pipeline pipeline(model, cut(model, 2), setup.replicas, *optimizer, {});
  std::array<std::set<std::thread::id>, 2> threads;
  for (int run = 0; run < 3; ++run) {
    pipeline.run(make_schedule(setup, batches, pipeline), batches,
                 {.learning_rate = [](int64_t) { return 0.1; },
                  .on_action =
                      [&](WorkerId worker, const schedule::TimelineEvent&) {
                        threads.at(worker.index()).insert(std::this_thread::get_id());
                      }});
  }
  EXPECT_EQ(threads[0].size(), 1);
  EXPECT_EQ(threads[1].size(), 1);
  EXPECT_NE(threads[0], threads[1]);
}

TEST(Synchronous, ModelParallelEqualsSerial) {
  expect_equals_serial(skip_model(), {.kind = Strategy::ModelParallel, .replicas = {1, 1, 1}});
}

TEST(Synchronous, DataParallelEqualsSerial) {
  expect_equals_serial(skip_model(), {.kind = Strategy::DataParallel, .replicas = {2}, .parts = 2});
  expect_equals_serial(skip_model(), {.kind = Strategy::DataParallel, .replicas = {3}, .parts = 6});
}

TEST(Synchronous, GPipeEqualsSerialForAnyNumberOfMicroBatches) {
  for (const int64_t parts : {1, 2, 5, 12}) {
    SCOPED_TRACE(parts);
    expect_equals_serial(skip_model(),
                         {.kind = Strategy::GPipe, .replicas = {1, 1, 1, 1}, .parts = parts});
  }
}

TEST(Synchronous, OneFOneBFlushEqualsSerial) {
  for (const int64_t parts : {1, 3, 8}) {
    SCOPED_TRACE(parts);
    expect_equals_serial(skip_model(),
                         {.kind = Strategy::OneFOneBFlush, .replicas = {1, 1, 1}, .parts = parts});
  }
}

TEST(Synchronous, ReplicatedStagesEqualSerial) {
  expect_equals_serial(skip_model(),
                       {.kind = Strategy::OneFOneBFlush, .replicas = {2, 1, 3}, .parts = 6});
  expect_equals_serial(skip_model(), {.kind = Strategy::GPipe, .replicas = {3, 2}, .parts = 4});
}

TEST(Synchronous, PartialLastMiniBatchEqualsSerial) {
  // 7 samples remain: fewer micro-batches than in a full mini-batch, so some replicas get none.
  for (const int64_t samples : {12 * 5 + 7, 12 * 5 + 1, 5}) {
    SCOPED_TRACE(samples);
    expect_equals_serial(skip_model(), {.kind = Strategy::OneFOneBFlush,
                                        .replicas = {2, 1},
                                        .parts = 4,
                                        .samples = samples,
                                        .learning_rate = 0.3});
  }
}

TEST(Synchronous, AdamEqualsSerial) {
  expect_equals_serial(skip_model(), {.kind = Strategy::GPipe,
                                      .replicas = {1, 2},
                                      .parts = 4,
                                      .optimizer = gentle_adam(),
                                      .learning_rate = 0.01});
}

TEST(Synchronous, DropoutDoesNotDependOnTheCut) {
  Case setup{.kind = Strategy::ModelParallel, .replicas = {1, 1, 1}};
  const model::Model model = skip_model(0.3);
  const Trained three = train(model, setup);
  setup.replicas = {1, 1};
  const Trained two = train(model, setup);
  setup.kind = Strategy::Serial;
  setup.replicas = {1};
  const Trained one = train(model, setup);
  EXPECT_EQ(one.losses, two.losses);
  EXPECT_EQ(one.losses, three.losses);
  EXPECT_EQ(weight_difference(one.layers, three.layers), 0.0);
}

TEST(Synchronous, RecomputationChangesNothingButMemory) {
  const model::Model model = skip_model(0.3);
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush}) {
    Case setup{.kind = kind, .replicas = {1, 2, 1}, .parts = 4};
    const Trained kept = train(model, setup);
    for (const std::vector<bool>& recompute :
         {std::vector<bool>{true, true, true}, {false, true, false}, {true, false, true}}) {
      setup.recompute = recompute;
      const Trained again = train(model, setup);
      EXPECT_EQ(kept.losses, again.losses);
      EXPECT_EQ(weight_difference(kept.layers, again.layers), 0.0);
    }
  }
}

TEST(Synchronous, RecomputationUpdatesRunningStatisticsOnce) {
  model::ModelBuilder net("normed");
  model::Value x = net.input({2, 2, 2});
  x = net.relu(net.batch_norm2d(net.conv2d(x, {.channels = 4, .kernel = 1})));
  const model::Model model = net.build(net.linear(net.flatten(x), {.features = 4}));
  std::vector<std::vector<LayerSnapshot>> states;
  for (const bool recompute : {false, true}) {
    states.push_back(train(model, {.kind = Strategy::GPipe,
                                   .replicas = {1, 1},
                                   .parts = 3,
                                   .recompute = {recompute, recompute},
                                   .sample = {2, 2, 2}})
                         .layers);
  }
  EXPECT_EQ(weight_difference(states[0], states[1]), 0.0);
  size_t buffers = 0;
  for (size_t l = 0; l < states[0].size(); ++l) {
    for (size_t b = 0; b < states[0][l].buffers.size(); ++b, ++buffers)
      EXPECT_TRUE(at::equal(states[0][l].buffers[b], states[1][l].buffers[b]));
  }
  EXPECT_GE(buffers, 2U);
}

/// Scales by the number of its runs: its output in training depends on a buffer.
class Counting : public model::Layer {
 public:
  std::string kind() const override { return "counting"; }
  std::vector<model::ParameterSpec> buffers() const override {
    return {{"runs", {1}, model::Init::constant(0)}};
  }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan buffers,
                         model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    const at::Tensor scale = 1 / (1 + 0.1 * buffers[0]);
    if (context.training) buffers[0].add_(1);
    return {inputs[0] * scale};
  }
};

TEST(Synchronous, RecomputationReadsTheBuffersThatTheForwardRead) {
  model::ModelBuilder net("counted");
  model::Value x = net.tanh(net.linear(net.input({8}), {.features = 8}));
  x = net.apply(std::make_shared<Counting>(), {x}, "counting").front();
  x = net.tanh(net.linear(x, {.features = 8}));
  const model::Model model = net.build(net.linear(x, {.features = 4}));
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1}) {
    Case setup{.kind = kind, .replicas = {1, 1}, .parts = 6};
    setup.stage_of_layer = {StageId{0}, StageId{0}, StageId{0}, StageId{0}, StageId{1}, StageId{1}};
    const Trained kept = train(model, setup);
    setup.recompute = {true, true};
    const Trained again = train(model, setup);
    expect_same_bits(kept, again);
    EXPECT_TRUE(kept.layers[2].buffers.at(0).equal(again.layers[2].buffers.at(0)));
    EXPECT_EQ(kept.layers[2].buffers.at(0).item<float>(), 120.0f);
  }
}

TEST(Synchronous, RunsAreRepeatableBitForBit) {
  const Case setup{.kind = Strategy::OneFOneBFlush, .replicas = {3, 2}, .parts = 6};
  const Trained first = train(skip_model(), setup);
  const Trained second = train(skip_model(), setup);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(weight_difference(first.layers, second.layers), 0.0);
}

TEST(Synchronous, SeveralRunsContinueWhereTheLastEnded) {
  const model::Model model = skip_model();
  const auto optimizer = model::make_optimizer({});
  const Case setup{.kind = Strategy::GPipe, .replicas = {1, 1}, .parts = 3, .samples = 12 * 4};
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  Pipeline pipeline(model, cut(model, 2), {1, 1}, *optimizer, {.seed = 3});
  std::vector<int64_t> steps;
  std::mutex mutex;
  const RunOptions options{.learning_rate = [&](int64_t step) {
    const std::lock_guard lock(mutex);
    steps.push_back(step);
    return 0.05;
  }};
  const auto schedule = make_schedule(setup, batches, pipeline);
  pipeline.run(schedule, batches, options);
  const double first = pipeline.run(schedule, batches, options).mini_batches.front().mean_loss();
  EXPECT_EQ(pipeline.steps(), 8);
  std::sort(steps.begin(), steps.end());
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}));

  Pipeline other(model, cut(model, 2), {1, 1}, *optimizer, {.seed = 11});
  const auto state = pipeline.snapshot();
  other.load(state, pipeline.steps());
  EXPECT_EQ(weight_difference(state, other.snapshot()), 0.0);
  const auto a = pipeline.run(schedule, batches, {.learning_rate = [](int64_t) { return 0.05; }});
  const auto b = other.run(schedule, batches, {.learning_rate = [](int64_t) { return 0.05; }});
  EXPECT_EQ(a.mini_batches.back().loss_sum, b.mini_batches.back().loss_sum);
  EXPECT_LT(a.mini_batches.back().mean_loss(), first);
}

}  // namespace
}  // namespace penstock::runtime::testing
