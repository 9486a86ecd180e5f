#include "penstock/model/loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "penstock/model/builder.h"
#include "penstock/model/profiling/memory_meter.h"
#include "penstock/model/row_losses.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

at::Tensor example_logits() {
  const std::vector<float> numbers = {2, 1, 0, 0, 3, 0, 1, 1, 5, -1, 0, 4};
  return at::tensor(numbers).view({4, 3}).requires_grad_();
}

TEST(CrossEntropy, MatchesTheFormula) {
  const at::Tensor logits = example_logits();
  const std::vector<int64_t> targets = {0, 2, 2, 2};
  const LossResult result = cross_entropy(logits, at::tensor(targets), {8, 8});
  double expected = 0;
  for (int64_t i = 0; i < 4; ++i) {
    double total = 0;
    for (int64_t c = 0; c < 3; ++c) total += std::exp(logits[i][c].item<double>());
    expected += std::log(total) - logits[i][targets[static_cast<size_t>(i)]].item<double>();
  }
  EXPECT_NEAR(result.loss_sum, expected, 1e-5);
  EXPECT_NEAR(result.scaled_loss.item<double>(), expected / 8, 1e-6);
  EXPECT_EQ(result.correct, 3);
}

TEST(CrossEntropy, UnequalMicroBatchesSumToTheGradientOfTheMiniBatch) {
  const at::Tensor logits = example_logits();
  const at::Tensor targets = at::tensor(std::vector<int64_t>{1, 2, 0, 2});
  const at::Tensor whole =
      torch::autograd::grad({cross_entropy(logits, targets, {4, 4}).scaled_loss}, {logits})[0];
  const at::Tensor first =
      cross_entropy(logits.slice(0, 0, 1), targets.slice(0, 0, 1), {4, 4}).scaled_loss;
  const at::Tensor rest =
      cross_entropy(logits.slice(0, 1, 4), targets.slice(0, 1, 4), {4, 4}).scaled_loss;
  const at::Tensor parts = torch::autograd::grad({first + rest}, {logits})[0];
  EXPECT_TRUE(at::allclose(whole, parts, 1e-6, 1e-7));
}

/// In blocks of rows, too: 700 rows of 1 MiB and more.
TEST(RowLosses, AreThoseOfTheOperatorWithItsGradients) {
  for (const int64_t classes : {int64_t{11}, int64_t{3'001}}) {
    const at::Tensor logits = at::randn({700, classes}, at::kDouble).mul_(20).requires_grad_();
    const at::Tensor targets = at::randint(classes, {700}, at::kLong);
    targets.slice(0, 1, 700, 5).fill_(-100);
    const at::Tensor weights = at::rand({700}, at::kDouble);
    const auto gradient = [&](const at::Tensor& of) {
      return torch::autograd::grad({of.dot(weights)}, {logits})[0];
    };
    for (const double smoothing : {0.0, 0.1}) {
      const RowLosses made = row_losses(logits, targets, -100, smoothing, false);
      const at::Tensor expected =
          at::cross_entropy_loss(logits, targets, /*weight=*/{}, /*reduction=*/0, -100, smoothing);
      EXPECT_TRUE(at::allclose(made.losses, expected, 1e-12, 1e-12)) << smoothing;
      EXPECT_TRUE(at::equal(made.best, logits.argmax(1)));
      const at::Tensor wanted = gradient(expected);
      EXPECT_TRUE(at::allclose(gradient(made.losses), wanted, 1e-12, 1e-15)) << smoothing;
      const at::Tensor copy = logits.detach().clone();
      const at::Tensor entered = copy.variable_data().requires_grad_();
      const at::Tensor sum =
          row_losses(entered, targets, -100, smoothing, true).losses.dot(weights);
      const at::Tensor found = torch::autograd::grad({sum}, {entered})[0];
      EXPECT_TRUE(found.is_alias_of(copy));
      EXPECT_TRUE(at::allclose(found, wanted, 1e-12, 1e-15)) << smoothing;
    }
    const at::Tensor without = row_losses(logits.detach(), targets, -100, 0, true).losses;
    EXPECT_TRUE(at::equal(without, row_losses(logits, targets, -100, 0, false).losses.detach()))
        << "nothing to overwrite where no gradient is wanted";
  }
}

TEST(RowLosses, ScaleTheirGradientOnceWhereItOverwrites) {
  const at::Tensor targets = at::tensor(std::vector<int64_t>{0, 1, 2, 2});
  for (const bool overwrites : {false, true}) {
    const at::Tensor logits = example_logits();
    const at::Tensor sum = row_losses(logits, targets, -100, 0, overwrites).losses.sum() * 2;
    const auto backward = [&] {
      return torch::autograd::grad({sum}, {logits}, {}, /*retain_graph=*/true)[0];
    };
    const at::Tensor first = backward();
    if (overwrites)
      EXPECT_THROW(backward(), c10::Error);
    else
      EXPECT_TRUE(at::equal(backward(), first));
  }
}

TEST(RowLosses, NeedNoMemoryBesideTheGradient) {
  const at::Tensor targets = at::zeros({1024}, at::kLong);
  for (const bool is_free : {false, true}) {
    const at::Tensor logits = at::randn({1024, 4096}).requires_grad_();
    const auto bytes = static_cast<double>(logits.nbytes());
    const detail::MemoryMeter meter;
    const MiniBatchSize size{.samples = 1024, .targets = 1024, .output_is_free = is_free};
    const at::Tensor loss =
        cross_entropy(logits.view({32, 32, 4096}), targets.view({32, 32}), size).scaled_loss;
    const at::Tensor gradient = torch::autograd::grad({loss}, {logits})[0];
    EXPECT_LT(static_cast<double>(meter.peak_bytes()), (is_free ? 0.2 : 2.2) * bytes);
  }
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  const at::Tensor logits = example_logits();
  const auto targets = [](std::vector<int64_t> values) { return at::tensor(values); };
  EXPECT_THROW(cross_entropy(logits, targets({0, 1, 2}), {4, 4}), ConfigError);
  EXPECT_THROW(cross_entropy(logits, targets({0, 1, 2, 3}), {4, 4}), ConfigError);
  EXPECT_THROW(cross_entropy(logits, targets({0, 1, 2, -1}), {4, 4}), ConfigError);
  EXPECT_THROW(cross_entropy(logits, targets({0, 1, 2, 2}).to(at::kInt), {4, 4}), ConfigError);
  EXPECT_THROW(cross_entropy(logits, targets({0, 1, 2, 2}), {0, 4}), ConfigError);
  EXPECT_THROW(cross_entropy(logits.view({2, 2, 3}), targets({0, 1}), {4, 4}), ConfigError);
}

TEST(CrossEntropy, CountsTargetsAmongTheLargest) {
  const at::Tensor logits = example_logits();  // 2 1 0; 0 3 0; 1 1 5; -1 0 4
  const at::Tensor targets = at::tensor(std::vector<int64_t>{2, 2, 1, 0});
  // Of equal logits, the first ones are larger.
  for (const auto& [most, expected] : {std::pair(1, 0), {2, 0}, {3, 4}})
    EXPECT_EQ(count_in_largest(logits, targets, most, {}), expected) << most;
  const at::Tensor others = at::tensor(std::vector<int64_t>{1, 0, 0, -100});
  for (const auto& [most, expected] : {std::pair(1, 0), {2, 3}, {3, 3}})
    EXPECT_EQ(count_in_largest(logits, others, most, {}), expected) << most;
  EXPECT_EQ(count_in_largest(logits.view({2, 2, 3}), others.view({2, 2}), 2, {}), 3);
  EXPECT_EQ(count_in_largest(logits.view({1, 4, 3}).transpose(1, 2).unsqueeze(2),
                             others.view({1, 1, 4}), 2, {}),
            3);
  EXPECT_THROW(count_in_largest(logits, at::tensor(std::vector<int64_t>{0, 1, 2, 3}), 2, {}),
               ConfigError);
}

TEST(CrossEntropy, CountsOfTheFirstAnswerAlone) {
  LossSpec spec;
  spec.auxiliary_weights = {0.4};
  const at::Tensor answers = at::stack({example_logits(), -example_logits()}, 1);
  const at::Tensor targets = at::tensor(std::vector<int64_t>{0, 1, 2, 0});
  EXPECT_EQ(count_in_largest(answers, targets, 1, spec), 3);
  EXPECT_EQ(count_in_largest(answers.slice(1, 0, 1), targets, 1, spec), 3);
}

TEST(OwnLoss, MicroBatchesWeighTheirTargets) {
  const auto number = [](int64_t targets) { return at::scalar_tensor(targets, at::kLong); };
  const at::Tensor means = at::tensor(std::vector<float>{3, 5, NAN}).requires_grad_();
  const MiniBatchSize whole{.samples = 8, .targets = 4};
  const LossResult one = own_loss(means.slice(0, 0, 1).expand({2}), number(1), whole);
  const LossResult three = own_loss(means.slice(0, 1, 2).expand({4}), number(3), whole);
  const LossResult none = own_loss(means.slice(0, 2, 3).expand({2}), number(0), whole);
  EXPECT_DOUBLE_EQ((one.loss_sum + three.loss_sum + none.loss_sum) / 8, (3 + 3 * 5) / 4.0);
  EXPECT_EQ(one.targets + three.targets + none.targets, 4);
  const at::Tensor gradient =
      torch::autograd::grad({one.scaled_loss, three.scaled_loss, none.scaled_loss}, {means})[0];
  EXPECT_TRUE(gradient.equal(at::tensor(std::vector<float>{0.25, 0.75, 0})));
  EXPECT_DOUBLE_EQ(own_loss(means.slice(0, 0, 1).expand({2}), {}, whole).loss_sum, 6);
}

// Counts by a loop of its own, compared with libtorch's operations.
TEST(PixelCrossEntropy, CountsAsTheOperationsDo) {
  at::manual_seed(3);
  for (const int64_t classes : {1, 2, 5}) {
    const at::Tensor all = at::randn({2, classes + 3, 7, 4});
    for (const at::Tensor& logits : {all.slice(1, 0, classes), at::zeros({2, classes, 7, 4})}) {
      at::Tensor targets = at::randint(0, classes, {2, 7, 4}, at::kLong);
      targets.masked_fill_(at::rand({2, 7, 4}).lt(0.3), kNoTarget);
      const LossResult result = pixel_cross_entropy(logits, targets, {.samples = 2});
      EXPECT_EQ(result.targets, targets.ne(kNoTarget).sum().item<int64_t>());
      EXPECT_EQ(result.correct, logits.argmax(1).eq(targets).sum().item<int64_t>());
    }
  }
  const at::Tensor logits = at::zeros({1, 2, 1, 2});
  const auto targets = [](std::vector<int64_t> values) {
    return at::tensor(values).view({1, 1, 2});
  };
  EXPECT_THROW(pixel_cross_entropy(logits, targets({0, 2}), {1, 1}), ConfigError);
  EXPECT_THROW(pixel_cross_entropy(logits, targets({-1, 1}), {1, 1}), ConfigError);
  EXPECT_EQ(pixel_cross_entropy(logits, targets({kNoTarget, kNoTarget}), {}).loss_sum, 0);
}

TEST(AuxiliaryCrossEntropy, AddsTheOtherAnswersTimesTheirWeights) {
  const at::Tensor logits = at::linspace(-2, 3, 24).sin().view({4, 2, 3});
  const at::Tensor targets = at::tensor({0, 2, 1, 1}, at::kLong);
  const LossSpec spec{.name = "cross-entropy", .auxiliary_weights = {0.4}};
  const MiniBatchSize all{.samples = 8};
  const LossResult answer = cross_entropy(logits.select(1, 0), targets, all, spec);
  const LossResult other = cross_entropy(logits.select(1, 1), targets, all, spec);
  const LossResult both = auxiliary_cross_entropy(logits, targets, all, spec);
  EXPECT_DOUBLE_EQ(both.loss_sum, answer.loss_sum + 0.4 * other.loss_sum);
  EXPECT_FLOAT_EQ(both.scaled_loss.item<float>(),
                  answer.scaled_loss.item<float>() + 0.4F * other.scaled_loss.item<float>());
  EXPECT_EQ(both.correct, answer.correct);
  EXPECT_EQ(both.targets, 4);
  // In evaluation.
  EXPECT_EQ(auxiliary_cross_entropy(logits.narrow(1, 0, 1), targets, all, spec).loss_sum,
            answer.loss_sum);
  EXPECT_THROW(auxiliary_cross_entropy(logits.select(1, 0), targets, all, spec), ConfigError);
}

TEST(AuxiliaryCrossEntropy, ComesWithTheModel) {
  ModelBuilder net("two answers");
  const Value x = net.input({4});
  const Value answer = net.linear(x, {.features = 3});
  const Value other = net.linear(x, {.features = 3});
  const Model model = net.build(net.with_auxiliary(answer, {{other, 0.25}}));
  const LossSpec spec = loss_for(model, {});
  EXPECT_EQ(spec.auxiliary_weights, std::vector<double>{0.25});
  const TargetSpec targets = targets_for(model, spec);
  EXPECT_EQ(targets.classes, 3);
  EXPECT_EQ(targets.shape, Shape{});
  EXPECT_THROW(loss_for(model, {.name = "mean-squared-error"}), ConfigError);
  EXPECT_THROW(net.build(answer), ConfigError);
}

}  // namespace
}  // namespace penstock::model
