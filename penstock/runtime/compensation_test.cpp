// Delays that are compensated equal a single-threaded reference that replays delays and
// compensations. It knows no schedules, stages or stores: it keeps every version of every weight
// with its optimiser's state, and finds versions, predictions and rates by formulas of its own.
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "penstock/model/loss.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/test_support.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::Compensation;
using schedule::WeightPolicy;

/// A weight after some steps.
struct Version {
  at::Tensor weight;
  model::Tensors state;
};

/// One worker per stage; the last stage has no delay.
class CompensatedReplay {
 public:
  CompensatedReplay(const model::Model& model, const Case& setup)
      : setup_(setup),
        stages_(static_cast<int64_t>(setup.replicas.size())),
        stage_of_layer_(cut(model, static_cast<int>(stages_))),
        whole_(model, std::vector<StageId>(stage_of_layer_.size(), StageId{0}), StageId{0}),
        optimizer_(model::make_optimizer(setup.optimizer)),
        batches_(setup.samples, setup.mini_batch, setup.parts, 8, 4) {
    for (const LayerId id : whole_.layers()) {
      for (const at::Tensor& weight : model.initial_weights(id, 3)) {
        versions_.push_back({{weight, optimizer_->new_state(weight)}});
        stage_of_weight_.push_back(stage_of_layer_[id.index()].value);
      }
    }
  }

  Trained run() {
    Trained result;
    const int64_t steps = (setup_.samples + setup_.mini_batch - 1) / setup_.mini_batch;
    for (int64_t t = 0; t < steps; ++t) result.losses.push_back(train_on(t));
    result.layers.resize(stage_of_layer_.size());
    for (size_t i = 0; i < whole_.layers().size(); ++i) {
      for (size_t w = whole_.weight_offsets()[i]; w < whole_.weight_offsets()[i + 1]; ++w)
        result.layers[whole_.layers()[i].index()].weights.push_back(versions_[w].back().weight);
    }
    return result;
  }

 private:
  int64_t delay(size_t w) const {
    switch (setup_.policy) {
      case WeightPolicy::VerticalSync:
        return stages_ - 1;
      case WeightPolicy::TwoBuffered:
        return 1;
      default:
        return stages_ - 1 - stage_of_weight_[w];
    }
  }
  int64_t forward_version(size_t w, int64_t t) const { return std::max<int64_t>(0, t - delay(w)); }

  /// SpecTrain for SGD, XPipe for Adam.
  at::Tensor predicted(size_t w, int64_t version, int64_t steps) const {
    const auto& [weight, state] = versions_[w][static_cast<size_t>(version)];
    if (version == 0 || steps == 0) return weight;
    const double far = setup_.learning_rate * static_cast<double>(steps);
    if (setup_.optimizer.kind == model::OptimizerKind::Sgd) return weight - far * state[0];
    const model::OptimizerSpec& spec = setup_.optimizer;
    const auto count = static_cast<double>(version);
    const at::Tensor mean = state[0] / (1 - std::pow(spec.beta1, count));
    const at::Tensor square = state[1] / (1 - std::pow(spec.beta2, count));
    return weight - far * mean / (square.sqrt() + spec.epsilon);
  }

  at::Tensor forward_weight(size_t w, int64_t t) const {
    const int64_t version = forward_version(w, t);
    return predicted(w, version, setup_.compensation == Compensation::Predict ? t - version : 0);
  }

  at::Tensor backward_weight(size_t w, int64_t t) const {
    if (setup_.policy != WeightPolicy::Latest) return forward_weight(w, t);
    const Version& newest = versions_[w].back();
    if (setup_.compensation != Compensation::Correct) return newest.weight;
    const auto since = static_cast<double>(t - forward_version(w, t));
    return newest.weight - since * newest.state.back();
  }

  double train_on(int64_t t) {
    model::Tensors sums(versions_.size());
    double loss_sum = 0;
    for (int64_t b = t * setup_.parts;
         b < std::min((t + 1) * setup_.parts, batches_.num_micro_batches()); ++b) {
      model::Tensors leaves;
      for (size_t w = 0; w < versions_.size(); ++w)
        leaves.push_back(forward_weight(w, t).clone().requires_grad_(true));
      model::Tensors buffers;
      const at::Tensor logits =
          whole_
              .forward(leaves, buffers, batches_.inputs(MicroBatchId{b}),
                       {.training = true, .seed = batches_.seed(MicroBatchId{b})})
              .front();
      const auto loss = model::cross_entropy(logits, batches_.targets(MicroBatchId{b}),
                                             batches_.size_of(MiniBatchId{t}));
      loss_sum += loss.loss_sum;
      for (size_t w = 0; w < leaves.size(); ++w)
        leaves[w].variable_data().copy_(backward_weight(w, t));
      const auto grads = torch::autograd::grad({loss.scaled_loss}, leaves);
      for (size_t w = 0; w < grads.size(); ++w)
        sums[w] = sums[w].defined() ? sums[w] + grads[w] : grads[w];
    }
    step(t, sums);
    return loss_sum / static_cast<double>(batches_.mini_batch_samples(MiniBatchId{t}));
  }

  void step(int64_t t, const model::Tensors& sums) {
    const at::NoGradGuard no_grad;
    for (size_t w = 0; w < sums.size(); ++w) {
      const Version& before = versions_[w].back();
      Version after{at::empty_like(before.weight), {}};
      for (const at::Tensor& state : before.state) after.state.push_back(state.clone());
      const auto delayed = static_cast<double>(delay(w));
      double rate = setup_.learning_rate;
      if (setup_.compensation == Compensation::Rate && delayed > 1) {
        const double faded = static_cast<double>(t) / static_cast<double>(setup_.fade_steps);
        rate /= std::pow(delayed, 1 - std::min(faded, 1.0));
      }
      optimizer_->step(before.weight, sums[w], after.weight, after.state,
                       {.learning_rate = rate,
                        .step = t + 1,
                        .mean_decay = delayed > 0 ? std::exp(-2 / delayed) : 0});
      versions_[w].push_back(std::move(after));
    }
  }

  const Case& setup_;
  int64_t stages_;
  std::vector<StageId> stage_of_layer_;
  StageModule whole_;
  std::unique_ptr<model::Optimizer> optimizer_;
  RandomBatches batches_;
  std::vector<std::vector<Version>> versions_;  ///< by weight
  std::vector<int64_t> stage_of_weight_;
};

void expect_compensated(const Case& setup) {
  const model::Model model = skip_model();
  const Trained actual = train(model, setup);
  const Trained expected = CompensatedReplay(model, setup).run();
  EXPECT_LT(loss_difference(expected.losses, actual.losses), kTolerance);
  EXPECT_LT(weight_difference(expected.layers, actual.layers), kTolerance);
  // Without the compensation it would be another result.
  Case plain = setup;
  plain.compensation = Compensation::None;
  EXPECT_GT(weight_difference(train(model, plain).layers, actual.layers), 10 * kTolerance);
}

Case compensated(Compensation compensation, WeightPolicy policy, int stages) {
  Case setup{.kind = Strategy::OneFOneB,
             .replicas = std::vector<int>(static_cast<size_t>(stages), 1),
             .policy = policy,
             .optimizer = {.kind = model::OptimizerKind::Sgd, .momentum = 0.9}};
  setup.compensation = compensation;
  return setup;
}

TEST(CompensatedDelays, PredictionsEqualTheReplay) {
  for (const WeightPolicy policy : {WeightPolicy::Stash, WeightPolicy::VerticalSync}) {
    for (const int stages : {2, 3, 4}) {
      SCOPED_TRACE(stages);
      expect_compensated(compensated(Compensation::Predict, policy, stages));
    }
  }
}

TEST(CompensatedDelays, PredictionsOfAdamEqualTheReplay) {
  Case setup = compensated(Compensation::Predict, WeightPolicy::Stash, 4);
  setup.optimizer = gentle_adam();
  setup.learning_rate = 0.01;
  expect_compensated(setup);
}

TEST(CompensatedDelays, PredictionsUnder2bwEqualTheReplay) {
  Case setup = compensated(Compensation::Predict, WeightPolicy::TwoBuffered, 3);
  setup.kind = Strategy::TwoBuffered;
  setup.parts = 3;
  expect_compensated(setup);
}

TEST(CompensatedDelays, RatesEqualTheReplay) {
  for (const WeightPolicy policy : {WeightPolicy::Stash, WeightPolicy::Latest}) {
    Case setup = compensated(Compensation::Rate, policy, 4);
    setup.fade_steps = 8;
    expect_compensated(setup);
  }
}

TEST(CompensatedDelays, CorrectedBackwardPassesEqualTheReplay) {
  for (const int stages : {2, 4}) {
    SCOPED_TRACE(stages);
    Case setup = compensated(Compensation::Correct, WeightPolicy::Latest, stages);
    setup.optimizer.mean_step = true;
    expect_compensated(setup);
  }
}

TEST(CompensatedDelays, CorrectionBringsBackwardPassesNearTheirForwardPasses) {
  // Stash is what the correction estimates, without its copies.
  Case setup = compensated(Compensation::Correct, WeightPolicy::Latest, 4);
  setup.optimizer.mean_step = true;
  setup.learning_rate = 0.01;
  const Trained corrected = train(skip_model(), setup);
  setup.compensation = Compensation::None;
  const Trained latest = train(skip_model(), setup);
  setup.policy = WeightPolicy::Stash;
  const Trained stash = train(skip_model(), setup);
  EXPECT_LT(weight_difference(corrected.layers, stash.layers),
            weight_difference(latest.layers, stash.layers));
}

TEST(CompensatedDelays, RecomputationReadsThePredictionAgain) {
  Case setup = compensated(Compensation::Predict, WeightPolicy::Stash, 3);
  const Trained kept = train(skip_model(0.3), setup);
  setup.recompute = {true, true, true};
  expect_same_bits(kept, train(skip_model(0.3), setup));
}

TEST(CompensatedDelays, ReplicasPredictTheSame) {
  Case setup = compensated(Compensation::Predict, WeightPolicy::Stash, 2);
  setup.replicas = {2, 1};
  setup.mini_batch = 12;
  setup.parts = 2;
  const Trained first = train(skip_model(), setup);
  expect_same_bits(first, train(skip_model(), setup));
  EXPECT_LT(first.losses.back(), first.losses.front());
}

TEST(CompensatedDelays, ShortVersionsArePredictedFromTheirMasters) {
  Case setup = compensated(Compensation::Predict, WeightPolicy::Stash, 3);
  const Trained exact = train(skip_model(), setup);
  setup.precision = Precision::BFloat16;
  const Trained rounded = train(skip_model(), setup);
  EXPECT_LT(loss_difference(exact.losses, rounded.losses), 0.05);
  EXPECT_GT(loss_difference(exact.losses, rounded.losses), 0);
}

TEST(CompensatedDelays, WhatCannotWorkIsRefused) {
  const auto refusal = [](const Case& setup) -> std::string {
    try {
      train(skip_model(), setup);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  Case setup = compensated(Compensation::Predict, WeightPolicy::Latest, 3);
  EXPECT_NE(refusal(setup).find("expected weights stash, vertical-sync or 2bw"), std::string::npos);
  setup = compensated(Compensation::Predict, WeightPolicy::Stash, 3);
  setup.optimizer.momentum = 0;
  EXPECT_NE(refusal(setup).find("the state of sgd does not say"), std::string::npos);
  setup = compensated(Compensation::Predict, WeightPolicy::Stash, 2);
  setup.replicas = {2, 1};
  setup.parts = 2;
  setup.shard_optimizer = {true, false};
  EXPECT_NE(refusal(setup).find("stage 0 shares out the optimiser's state"), std::string::npos);
  EXPECT_NE(refusal(compensated(Compensation::Correct, WeightPolicy::Latest, 3))
                .find("keeps a running mean of its steps"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::runtime::testing
