// The online schedule equals a single-threaded reference that goes tick by tick: every stage one
// frame, forward and backward, messages handed over between ticks.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <atomic>
#include <thread>

#include "penstock/model/loss.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/test_support.h"
#include "penstock/schedule/endless_schedule.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;

model::Model chain_model() {
  model::ModelBuilder net("chain");
  model::Value x = net.input({8});
  for (int i = 0; i < 5; ++i) x = net.tanh(net.linear(x, {.features = 12}));
  return net.build(net.linear(x, {.features = 4}));
}

/// One stage of the reference.
struct ReferenceStage {
  struct Pass {
    at::Tensor input;
    model::Tensors weights = {};
    at::Tensor output = {};
    int64_t frame = -1;
  };
  StageModule module;
  model::Tensors weights = {};
  std::vector<model::Tensors> state = {};
  std::map<int64_t, Pass> passes = {};
  int64_t steps = 0;

  Pass forward(const at::Tensor& input, int64_t frame) const {
    Pass pass{.input = input.detach().clone().requires_grad_(true), .frame = frame};
    for (const at::Tensor& weight : weights)
      pass.weights.push_back(weight.clone().requires_grad_(true));
    model::Tensors buffers;
    const model::Tensors inputs = {pass.input};
    pass.output = module.forward(pass.weights, buffers, inputs, {.training = true, .seed = 1})[0];
    return pass;
  }
};

Trained ticked_reference(const model::Model& model, const Case& setup) {
  const auto stages = static_cast<int64_t>(setup.replicas.size());
  const std::vector<StageId> stage_of_layer = cut(model, static_cast<int>(stages));
  const auto optimizer = model::make_optimizer(setup.optimizer);
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  const int64_t frames = batches.num_micro_batches();
  std::vector<ReferenceStage> line;
  for (int32_t s = 0; s < stages; ++s) {
    ReferenceStage& stage =
        line.emplace_back(ReferenceStage{.module = StageModule(model, stage_of_layer, StageId{s})});
    for (const LayerId id : stage.module.layers()) {
      for (const at::Tensor& weight : model.initial_weights(id, 3)) stage.weights.push_back(weight);
    }
    stage.state.resize(optimizer->state_names().size());
    for (auto& tensors : stage.state) {
      for (const at::Tensor& weight : stage.weights) tensors.push_back(at::zeros_like(weight));
    }
  }
  Trained result;
  std::vector<std::map<int64_t, at::Tensor>> inputs(line.size() + 1);
  std::vector<std::map<int64_t, at::Tensor>> gradients(line.size());
  for (int64_t tick = 0; tick < frames + 2 * stages; ++tick) {
    for (int64_t s = 0; s < stages; ++s) {
      ReferenceStage& stage = line[static_cast<size_t>(s)];
      const bool is_last = s + 1 == stages;
      const int64_t b = tick - s;
      if (b >= 0 && b < frames) {
        const at::Tensor input =
            s == 0 ? batches.inputs(MicroBatchId{b})[0] : inputs[static_cast<size_t>(s)].at(b);
        stage.passes[b] = stage.forward(input, b);
        inputs[static_cast<size_t>(s) + 1][b] = stage.passes[b].output.detach();
      }
      const int64_t g = tick - s - 2 * (stages - 1 - s);
      if (g < 0 || g >= frames) continue;
      ReferenceStage::Pass pass;
      if (setup.policy == WeightPolicy::Current) {
        pass = stage.passes.rbegin()->second;
        if (pass.frame != b) pass = stage.forward(pass.input, pass.frame);
      } else {
        pass = stage.passes.at(g);
        if (setup.policy == WeightPolicy::Latest) {
          for (size_t w = 0; w < pass.weights.size(); ++w)
            pass.weights[w].variable_data().copy_(stage.weights[w]);
        }
      }
      model::Tensors leaves = pass.weights;
      leaves.push_back(pass.input);
      model::Tensors made;
      if (is_last) {
        const auto loss = model::cross_entropy(pass.output, batches.targets(MicroBatchId{g}),
                                               batches.size_of(MiniBatchId{g}));
        result.losses.push_back(loss.loss_sum /
                                static_cast<double>(batches.mini_batch_samples(MiniBatchId{g})));
        made = torch::autograd::grad({loss.scaled_loss}, leaves);
      } else {
        made =
            torch::autograd::grad({pass.output}, leaves, {gradients[static_cast<size_t>(s)].at(g)});
      }
      if (s > 0) gradients[static_cast<size_t>(s) - 1][g] = made.back();
      const at::NoGradGuard no_grad;
      for (size_t w = 0; w < stage.weights.size(); ++w) {
        at::Tensor next = at::empty_like(stage.weights[w]);
        model::Tensors own;
        for (auto& tensors : stage.state) own.push_back(tensors[w]);
        optimizer->step(stage.weights[w], made[w], next, own,
                        {.learning_rate = setup.learning_rate, .step = stage.steps + 1});
        stage.weights[w] = next;
      }
      ++stage.steps;
    }
  }
  result.layers.resize(stage_of_layer.size());
  for (const ReferenceStage& stage : line) {
    for (size_t i = 0; i < stage.module.layers().size(); ++i) {
      for (size_t w = stage.module.weight_offsets()[i]; w < stage.module.weight_offsets()[i + 1];
           ++w)
        result.layers[stage.module.layers()[i].index()].weights.push_back(stage.weights[w]);
    }
  }
  return result;
}

Case online(int stages, WeightPolicy policy) {
  return {.kind = Strategy::Online,
          .replicas = std::vector<int>(static_cast<size_t>(stages), 1),
          .policy = policy};
}

constexpr std::array kPolicies = {WeightPolicy::Current, WeightPolicy::Latest, WeightPolicy::Stash};

TEST(Online, EqualsTheReferenceTickByTick) {
  const model::Model model = chain_model();
  for (const WeightPolicy policy : kPolicies) {
    for (const int stages : {1, 2, 3, 4, 6}) {
      SCOPED_TRACE(std::string(to_string(policy)) + ", stages " + std::to_string(stages));
      const Case setup = online(stages, policy);
      const Trained expected = ticked_reference(model, setup);
      const Trained actual = train(model, setup);
      EXPECT_LT(loss_difference(expected.losses, actual.losses), kTolerance);
      EXPECT_LT(weight_difference(expected.layers, actual.layers), kTolerance);
    }
  }
}

TEST(Online, WithOneStageIsSerialTrainingWhateverThePolicy) {
  const model::Model model = skip_model();
  const Trained serial = train(model, {.kind = Strategy::Serial, .replicas = {1}});
  for (const WeightPolicy policy : kPolicies)
    expect_same_bits(serial, train(model, online(1, policy)));
}

TEST(Online, PoliciesDifferOnDataThatChange) {
  // If they did not, the reference would prove nothing.
  const model::Model model = chain_model();
  const Trained current = train(model, online(3, WeightPolicy::Current));
  const Trained latest = train(model, online(3, WeightPolicy::Latest));
  const Trained stash = train(model, online(3, WeightPolicy::Stash));
  EXPECT_GT(weight_difference(current.layers, stash.layers), 10 * kTolerance);
  EXPECT_GT(weight_difference(latest.layers, stash.layers), 10 * kTolerance);
}

TEST(Online, RecomputationUnderCurrentGoesThroughTheSameMicroBatch) {
  for (const WeightPolicy policy : {WeightPolicy::Current, WeightPolicy::Stash}) {
    Case setup = online(3, policy);
    const Trained kept = train(skip_model(0.3), setup);
    setup.recompute = {true, true, true};
    expect_same_bits(kept, train(skip_model(0.3), setup));
  }
}

TEST(Online, KeepsOneVersionUnlessItStashes) {
  const model::Model model = chain_model();
  EXPECT_EQ(train(model, online(3, WeightPolicy::Current)).run.peak_versions,
            (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(train(model, online(3, WeightPolicy::Latest)).run.peak_versions,
            (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(train(model, online(3, WeightPolicy::Stash)).run.peak_versions,
            (std::vector<int64_t>{5, 3, 1}));
}

/// The same micro-batch again and again.
class ConstantBatch final : public BatchSource {
 public:
  ConstantBatch() : batches_(12, 12, 1, 8, 4) {}
  model::Tensors inputs(MicroBatchId) const override { return batches_.inputs(MicroBatchId{0}); }
  at::Tensor targets(MicroBatchId) const override { return batches_.targets(MicroBatchId{0}); }
  int64_t samples(MicroBatchId) const override { return 12; }
  int64_t mini_batch_samples(MiniBatchId) const override { return 12; }
  uint64_t seed(MicroBatchId) const override { return 1; }

 private:
  RandomBatches batches_;
};

std::vector<LayerSnapshot> train_on_constant(const Case& setup, int64_t frames, double rate) {
  const model::Model model = chain_model();
  const auto optimizer = model::make_optimizer({.kind = model::OptimizerKind::Sgd});
  Pipeline pipeline(model, cut(model, static_cast<int>(setup.replicas.size())), setup.replicas,
                    *optimizer, {.seed = 3});
  const schedule::Schedule schedule =
      lower(generate(setup.kind, shape_of(setup, frames)), pipeline.links());
  pipeline.run(schedule, ConstantBatch(),
               {.learning_rate = [&](int64_t) { return rate; },
                .credits = std::max<int64_t>(4, verify::min_credits(schedule))});
  return pipeline.snapshot();
}

TEST(Online, OfAConstantInputHasTheGradientsOfSequentialTraining) {
  // Delays only matter as far as the weights move in between: over 8 small steps the changes agree
  // to the first order, whatever the stages and the policy.
  const Case serial{.kind = Strategy::Serial, .replicas = {1}};
  const auto before = train_on_constant(serial, 0, 0);
  const auto changes = [&](const Case& setup) {
    std::vector<LayerSnapshot> after = train_on_constant(setup, 8, 1e-2);
    for (size_t l = 0; l < after.size(); ++l) {
      for (size_t w = 0; w < after[l].weights.size(); ++w)
        after[l].weights[w] = after[l].weights[w] - before[l].weights[w];
    }
    return after;
  };
  const auto expected = changes(serial);
  for (const WeightPolicy policy : kPolicies) {
    for (const int stages : {2, 4, 6}) {
      SCOPED_TRACE(std::string(to_string(policy)) + ", stages " + std::to_string(stages));
      EXPECT_LT(weight_difference(expected, changes(online(stages, policy))), 0.05);
    }
  }
}

TEST(Online, OfAConstantInputLearnsWhatSequentialTrainingLearns) {
  const Case serial{.kind = Strategy::Serial, .replicas = {1}};
  const model::Model model = chain_model();
  const StageModule whole(model, cut(model, 1), StageId{0});
  const ConstantBatch batch;
  const auto outputs = [&](const Case& setup) {
    model::Tensors weights;
    for (const LayerSnapshot& layer : train_on_constant(setup, 5000, 0.01))
      weights.insert(weights.end(), layer.weights.begin(), layer.weights.end());
    model::Tensors buffers;
    const at::NoGradGuard no_grad;
    return whole.forward(weights, buffers, batch.inputs(MicroBatchId{0}), {})[0].softmax(1);
  };
  const at::Tensor expected = outputs(serial);
  for (const WeightPolicy policy : kPolicies) {
    const at::Tensor actual = outputs(online(4, policy));
    EXPECT_LT((expected - actual).abs().max().item<double>(), 0.02) << to_string(policy);
  }
}

/// The micro-batches of a finite source, one after another, some of them late.
class Stream final : public BatchSource {
 public:
  Stream(int64_t frames, int64_t late_every)
      : batches_(frames * 4, 4, 1, 8, 4), frames_(frames), late_every_(late_every) {}
  Next next(MicroBatchId b) override {
    if (b.value >= frames_) return Next::Ended;
    if (late_every_ > 0 && b.value % late_every_ == 1 && ++asked_ % 3 != 0) return Next::NotYet;
    return Next::Ready;
  }
  model::Tensors inputs(MicroBatchId b) const override { return batches_.inputs(b); }
  at::Tensor targets(MicroBatchId b) const override { return batches_.targets(b); }
  int64_t samples(MicroBatchId) const override { return 4; }
  int64_t mini_batch_samples(MiniBatchId) const override { return 4; }
  uint64_t seed(MicroBatchId b) const override { return static_cast<uint64_t>(b.value); }

 private:
  RandomBatches batches_;
  int64_t frames_;
  int64_t late_every_;
  int64_t asked_ = 0;
};

struct Streamed {
  std::vector<double> losses;
  std::vector<LayerSnapshot> layers;
  int64_t steps = 0;
};

Streamed run_stream(const Case& setup, int64_t frames, bool endless,
                    const std::function<void(RunOptions&)>& change = {}) {
  const model::Model model = chain_model();
  const auto optimizer = model::make_optimizer(setup.optimizer);
  Pipeline pipeline(model, cut(model, static_cast<int>(setup.replicas.size())), setup.replicas,
                    *optimizer, {.seed = 3, .deadline = std::chrono::seconds(30)});
  Stream stream(frames, 3);
  Streamed result;
  RunOptions options{.learning_rate = [&](int64_t) { return 0.05; },
                     .on_mini_batch =
                         [&](MiniBatchId, const MiniBatchStats& stats) {
                           result.losses.push_back(stats.mean_loss());
                           return true;
                         },
                     .credits = 1,
                     .max_timeline_events = 0};
  if (change) change(options);
  const schedule::ScheduleShape shape = shape_of(setup, frames);
  if (endless) {
    const auto schedule = schedule::make_endless(setup.kind, shape, pipeline.links());
    EXPECT_TRUE(pipeline.run_endless(schedule, stream, options).mini_batches.empty());
  } else {
    pipeline.run(lower(generate(setup.kind, shape), pipeline.links()), stream, options);
  }
  result.layers = pipeline.snapshot();
  result.steps = pipeline.steps();
  return result;
}

TEST(Endless, EqualsTheFiniteScheduleOfAsManyFramesWheneverTheStreamEnds) {
  for (const WeightPolicy policy : kPolicies) {
    for (const int stages : {1, 2, 3, 6}) {
      for (const int64_t frames : {0, 1, 2, 5, 23}) {
        SCOPED_TRACE(std::string(to_string(policy)) + ", stages " + std::to_string(stages) +
                     ", frames " + std::to_string(frames));
        const Case setup = online(stages, policy);
        const Streamed finite = run_stream(setup, frames, false);
        const Streamed endless = run_stream(setup, frames, true);
        EXPECT_EQ(finite.losses, endless.losses);
        EXPECT_EQ(endless.steps, frames);
        EXPECT_EQ(weight_difference(finite.layers, endless.layers), 0.0);
      }
    }
  }
}

TEST(Endless, OneFOneBStreamsAsWell) {
  Case setup = online(3, WeightPolicy::Stash);
  setup.kind = Strategy::OneFOneB;
  EXPECT_EQ(
      weight_difference(run_stream(setup, 20, false).layers, run_stream(setup, 20, true).layers),
      0.0);
}

TEST(Endless, StopsWhenItIsToldAndFinishesWhatIsUnderWay) {
  std::atomic<bool> stop = false;
  const Streamed stopped =
      run_stream(online(4, WeightPolicy::Current), 1'000'000, true, [&](RunOptions& options) {
        options.stop = &stop;
        options.on_action = [&](WorkerId worker, const schedule::TimelineEvent& event) {
          if (worker.value == 3 && event.action.micro_batch.value == 10) stop = true;
        };
      });
  EXPECT_GE(stopped.steps, 11);
  EXPECT_LT(stopped.steps, 1'000'000);
  EXPECT_EQ(stopped.losses.size(), static_cast<size_t>(stopped.steps));
}

TEST(Endless, AFailureEndsItWhileTheFirstStageWaitsForFrames) {
  const model::Model model = chain_model();
  const auto optimizer = model::make_optimizer({.kind = model::OptimizerKind::Sgd});
  Pipeline pipeline(model, cut(model, 2), {1, 1}, *optimizer, {.seed = 3});
  class Stalled final : public BatchSource {
   public:
    Next next(MicroBatchId b) override {
      if (b.value < 2) return Next::Ready;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Next::NotYet;
    }
    model::Tensors inputs(MicroBatchId) const override { return {at::ones({4, 8})}; }
    at::Tensor targets(MicroBatchId b) const override {
      return at::full({4}, b.value == 0 ? 0 : 99, at::kLong);
    }
    int64_t samples(MicroBatchId) const override { return 4; }
    int64_t mini_batch_samples(MiniBatchId) const override { return 4; }
    uint64_t seed(MicroBatchId) const override { return 1; }
  } stalled;
  const auto schedule = schedule::make_endless(
      Strategy::Online, {.replicas = {1, 1}, .policy = WeightPolicy::Current}, pipeline.links());
  EXPECT_THROW(pipeline.run_endless(schedule, stalled,
                                    {.learning_rate = [](int64_t) { return 0.1; }, .credits = 1}),
               RuntimeError);
}

}  // namespace
}  // namespace penstock::runtime::testing
