// Layers of sequences against their definitions, or libtorch's own.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "penstock/model/layers/testing_trial.h"

namespace penstock::model {
namespace {

TEST(Embedding, LooksUpRows) {
  Trial trial(detail::make_embedding({.values = 5, .features = 2}), {{3}}, 2, 5);
  const at::Tensor y = trial.run()[0];
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 3, 2}));
  EXPECT_TRUE(at::equal(y[1][2], trial.weights[0][0]));
  EXPECT_TRUE(at::equal(y[0][1], trial.weights[0][1]));
}

TEST(Embedding, LeavesOutWholeRowsAtAllTheirPlaces) {
  Trial trial(detail::make_embedding({.values = 40, .features = 3, .dropout = 0.5}), {{60}}, 2, 40);
  const at::Tensor y = trial.run()[0].reshape({120, 3});
  const at::Tensor table = trial.weights[0];
  int64_t left_out = 0;
  for (int64_t i = 0; i < 120; ++i) {
    const bool is_out = y[i].eq(0).all().item<bool>();
    if (i < 40) left_out += is_out ? 1 : 0;
    EXPECT_TRUE(at::equal(y[i], is_out ? at::zeros({3}, at::kDouble) : table[i % 40] * 2)) << i;
    EXPECT_TRUE(at::equal(y[i], y[i % 40])) << i;
  }
  EXPECT_GT(left_out, 8);
  EXPECT_LT(left_out, 32);
  trial.context.training = false;
  EXPECT_TRUE(at::equal(trial.run()[0].reshape({120, 3})[7], table[7]));
}

TEST(LayerNorm, NormalisesTheLastDimension) {
  Trial trial(detail::make_layer_norm(8, {}), {{3, 8}});
  trial.weights = {at::ones({8}, at::kDouble), at::zeros({8}, at::kDouble)};
  const at::Tensor y = trial.run()[0];
  EXPECT_LT(y.mean(2).abs().max().item<double>(), 1e-12);
  EXPECT_NEAR(y.pow(2).mean(2).min().item<double>(), 1, 1e-3);
}

TEST(CausalAttention, SeesItselfAndWhatIsBefore) {
  Trial trial(detail::make_causal_attention({.heads = 2}), {{5, 12}});
  const at::Tensor before = trial.run()[0];
  trial.inputs[0].select(1, 3).add_(1);
  const at::Tensor after = trial.run()[0];
  EXPECT_TRUE(at::equal(before.slice(1, 0, 3), after.slice(1, 0, 3)));
  EXPECT_FALSE(at::equal(before.select(1, 3), after.select(1, 3)));
  EXPECT_FALSE(at::equal(before.select(1, 4), after.select(1, 4)));
}

/// Outputs, then the gradients of input and weights.
Tensors results_of(const at::Tensor& output, Tensors leaves, const Trial& trial) {
  Tensors results = torch::autograd::grad({output}, leaves, {random(output.sizes().vec(), 9)});
  results.insert(results.begin(), output.detach());
  EXPECT_EQ(results.size(), trial.weights.size() + 2);
  return results;
}

TEST(Embedding, DoesNotTrainTheRowOfPadding) {
  Trial trial(detail::make_embedding({.values = 4, .features = 3, .padding = 2}), {{4}}, 2, 4);
  trial.weights[0].requires_grad_();
  const at::Tensor gradient =
      torch::autograd::grad({trial.run()[0].sum()}, {trial.weights[0]}).front();
  EXPECT_TRUE(at::equal(gradient.select(1, 0), at::tensor({2.0, 2.0, 0.0, 2.0}, at::kDouble)));
}

TEST(ReverseSequence, TurnsEachSentenceAndLeavesPadding) {
  Trial trial(detail::make_reverse_sequence(), {{4, 2}, {4}}, 3, 9);
  trial.inputs[1] = at::tensor({5, 0, 7, 0, 1, 2, 3, 4, 0, 0, 0, 0}, at::kLong).view({3, 4});
  const at::Tensor x = trial.inputs[0];
  const at::Tensor y = trial.run()[0];
  const auto order = [&](int64_t sample, const std::vector<int64_t>& places) {
    return x[sample].index_select(0, at::tensor(places));
  };
  EXPECT_TRUE(at::equal(y[0], order(0, {2, 1, 0, 3}))) << "padding inside of a sentence is a token";
  EXPECT_TRUE(at::equal(y[1], order(1, {3, 2, 1, 0})));
  EXPECT_TRUE(at::equal(y[2], x[2]));
  trial.inputs[0] = y;
  EXPECT_TRUE(at::equal(trial.run()[0], x));
}

TEST(AdditiveAttention, MatchesTheDefinitionAndSeesNoPadding) {
  Trial trial(detail::make_additive_attention(3), {{2, 3}, {4, 3}, {4, 5}, {4}}, 2, 9);
  trial.inputs[3] = at::tensor({5, 6, 0, 0, 1, 2, 3, 4}, at::kLong).view({2, 4});
  const at::Tensor y = trial.run()[0];
  const at::Tensor direction = trial.weights[0] / trial.weights[0].norm() * trial.weights[2];
  for (const int64_t sample : {0, 1}) {
    const int64_t length = sample == 0 ? 2 : 4;
    const at::Tensor sums =
        trial.inputs[0][sample][1] + trial.weights[1] + trial.inputs[1][sample].slice(0, 0, length);
    const at::Tensor shares = at::softmax(sums.tanh().matmul(direction), 0);
    EXPECT_TRUE(
        at::allclose(y[sample][1], shares.matmul(trial.inputs[2][sample].slice(0, 0, length))));
  }
}

TEST(Places, AreAddedAndLeftOutAtBothEnds) {
  Trial wider(detail::make_pad_places({.before = 1, .behind = 2}), {{3, 2}});
  const at::Tensor y = wider.run()[0];
  EXPECT_TRUE(at::equal(y.narrow(1, 1, 3), wider.inputs[0]));
  EXPECT_EQ(y.select(1, 0).abs().sum().item<double>(), 0);
  EXPECT_EQ(y.narrow(1, 4, 2).abs().sum().item<double>(), 0);
  Trial narrower(detail::make_cut_places({.before = 1, .behind = 2}), {{6, 2}});
  narrower.inputs[0] = y;
  EXPECT_TRUE(at::equal(narrower.run()[0], wider.inputs[0]));
}

TEST(FrameSheet, HasFramesOneBelowTheOther) {
  Trial sheet(detail::make_frames_to_sheet(3), {{4, 12}});
  const at::Tensor y = sheet.run()[0];
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 3, 8, 2}));
  for (int64_t f = 0; f < 4; ++f)
    EXPECT_TRUE(
        at::equal(y.narrow(2, 2 * f, 2), sheet.inputs[0].select(1, f).reshape({2, 3, 2, 2})));
  Trial frames(detail::make_sheet_to_frames(4), {{3, 8, 2}});
  frames.inputs[0] = y;
  EXPECT_TRUE(at::equal(frames.run()[0], sheet.inputs[0]));
}

TEST(Lstm, IsThatOfLibtorch) {
  for (const int64_t time : {1, 7}) {
    Trial trial(detail::make_lstm(5, {.features = 3}), {{time, 5}}, 4);
    Tensors leaves = trial.leaves();
    for (at::Tensor& leaf : leaves) leaf.requires_grad_();
    const Tensors found = results_of(trial.run()[0], leaves, trial);
    const at::Tensor zero = at::zeros({1, 4, 3}, at::kDouble);
    const auto [output, hidden, cells] =
        at::lstm(trial.inputs[0], {zero, zero}, trial.weights, /*has_biases=*/true,
                 /*num_layers=*/1, /*dropout=*/0, /*train=*/true, /*bidirectional=*/false,
                 /*batch_first=*/true);
    const Tensors expected = results_of(output, leaves, trial);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], expected[i])) << i << " of " << time;
  }
}

TEST(Lstm, GoesOnFromCarriedStatesAsThatOfLibtorch) {
  for (const int64_t time : {1, 7}) {
    Trial trial(detail::make_lstm(5, {.features = 3, .carries = true}), {{time, 5}}, 4);
    ASSERT_EQ(trial.layer->carried().size(), 2U);
    const Tensors before = {random({4, 3}, 71), random({4, 3}, 72)};
    Tensors carried = before;
    trial.context.carried = carried;
    Tensors leaves = trial.leaves();
    for (at::Tensor& leaf : leaves) leaf.requires_grad_();
    const Tensors found = results_of(trial.run()[0], leaves, trial);
    const auto [output, hidden, cells] =
        at::lstm(trial.inputs[0], {before[0].unsqueeze(0), before[1].unsqueeze(0)}, trial.weights,
                 /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0, /*train=*/true,
                 /*bidirectional=*/false, /*batch_first=*/true);
    const Tensors expected = results_of(output, leaves, trial);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], expected[i])) << i << " of " << time;
    EXPECT_TRUE(at::allclose(carried[0], hidden[0]));
    EXPECT_TRUE(at::allclose(carried[1], cells[0]));
    EXPECT_FALSE(carried[0].requires_grad());
    EXPECT_EQ(static_cast<int64_t>(carried[0].storage().nbytes()), 4 * 3 * 8);
  }
}

TEST(Lstm, BeginsWithZerosWhereATextBegins) {
  Trial trial(detail::make_lstm(5, {.features = 3, .carries = true}), {{7, 5}}, 4);
  const at::Tensor plain = trial.run()[0];
  Tensors carried(2);
  trial.context.carried = carried;
  EXPECT_TRUE(at::equal(trial.run()[0], plain));
  EXPECT_TRUE(at::equal(carried[0], plain.select(1, 6)));
  EXPECT_FALSE(at::allclose(trial.run()[0], plain));
}

TEST(Lstm, LeavesOutTheSameRecurrentWeightsEverywhere) {
  Trial trial(detail::make_lstm(2, {.features = 3, .weight_dropout = 0.5}), {{6, 2}});
  Trial plain(detail::make_lstm(2, {.features = 3}), {{6, 2}});
  const at::Tensor first = trial.run()[0];
  EXPECT_TRUE(at::equal(first, trial.run()[0]));
  // The first place has nothing before it, so nothing is left out there.
  EXPECT_TRUE(at::equal(first.select(1, 0), plain.run()[0].select(1, 0)));
  EXPECT_FALSE(at::allclose(first.select(1, 1), plain.run()[0].select(1, 1)));
  trial.weights[1].requires_grad_();
  const at::Tensor gradient =
      torch::autograd::grad({trial.run()[0].sum()}, {trial.weights[1]}).front();
  const int64_t kept = gradient.ne(0).sum().item<int64_t>();
  EXPECT_GT(kept, 9);
  EXPECT_LT(kept, 27);
  trial.context.training = false;
  EXPECT_TRUE(at::equal(trial.run()[0], plain.run()[0]));
}

TEST(Lstm, NamesItsWeightsAsPartsOfAModule) {
  const detail::LayerPtr layer =
      detail::make_lstm(2, {.features = 3, .module = "rnn", .suffix = "_reverse"});
  EXPECT_EQ(state_key("layer", layer->parameters()[1]), "rnn.weight_hh_l0_reverse");
  EXPECT_EQ(state_key("layer", detail::make_lstm(2, {.features = 3})->parameters()[1]),
            "layer.weight_hh_l0");
}

TEST(LockedDropout, LeavesOutFeaturesAtAllPlacesOfASample) {
  Trial trial(detail::make_locked_dropout(0.5), {{7, 64}});
  const at::Tensor y = trial.run()[0];
  const at::Tensor factors = y / trial.inputs[0];
  EXPECT_TRUE(at::allclose(factors, factors.narrow(1, 0, 1).expand_as(factors)));
  EXPECT_TRUE(factors.round().eq(0).logical_or(factors.round().eq(2)).all().item<bool>());
  EXPECT_FALSE(at::equal(factors[0].round(), factors[1].round()));
  EXPECT_NEAR(factors.ne(0).to(at::kDouble).mean().item<double>(), 0.5, 0.2);
}

/// The definition, one query and one head at a time.
TEST(CausalAttention, MatchesTheDefinition) {
  Trial trial(detail::make_causal_attention({.heads = 2}), {{4, 12}});
  const at::Tensor y = trial.run()[0];
  const at::Tensor x = trial.inputs[0];
  for (const int64_t t : {0, 2, 3}) {
    for (const int64_t head : {0, 1}) {
      const auto part = [&](int64_t which) {
        const int64_t first = which * 4 + head * 2;
        return x[1].slice(0, 0, t + 1).slice(1, first, first + 2);
      };
      const at::Tensor shares = at::softmax(part(1).matmul(part(0)[t]) / std::sqrt(2.0), 0);
      const at::Tensor expected = shares.matmul(part(2));
      EXPECT_TRUE(at::allclose(y[1][t].slice(0, head * 2, head * 2 + 2), expected)) << t;
    }
  }
}

TEST(CausalAttention, DropoutKeepsTheMeanAndFollowsTheSeed) {
  Trial trial(detail::make_causal_attention({.heads = 2, .dropout = 0.5}), {{40, 12}});
  trial.inputs[0].slice(2, 0, 8).zero_();  // all that is seen counts alike
  trial.inputs[0].slice(2, 8, 12).fill_(1);
  const at::Tensor y = trial.run()[0];
  EXPECT_TRUE(at::equal(y, trial.run()[0]));
  EXPECT_NEAR(y.slice(1, 20, 40).mean().item<double>(), 1, 0.1);
  EXPECT_GT(y.std(/*unbiased=*/true).item<double>(), 0.05);
  trial.context.training = false;
  EXPECT_TRUE(at::allclose(trial.run()[0], at::ones_like(y)));
}

}  // namespace
}  // namespace penstock::model
