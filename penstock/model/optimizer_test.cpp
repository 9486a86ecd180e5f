#include "penstock/model/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "penstock/model/layer.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

at::Tensor random_floats(int64_t count, uint64_t seed) {
  return at::empty({count}, at::TensorOptions().dtype(at::kFloat))
      .normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.to(at::kDouble).contiguous();
  return {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

/// The formulas of torch.optim in double precision, one number at a time.
struct Reference {
  OptimizerSpec spec;
  std::vector<double> weight, first, second;

  Reference(OptimizerSpec s, const at::Tensor& w)
      : spec(std::move(s)), weight(numbers(w)), first(weight.size(), 0), second(weight.size(), 0) {}

  void step(const at::Tensor& gradient, const StepContext& context) {
    const std::vector<double> gradients = numbers(gradient);
    const auto count = static_cast<double>(context.step);
    for (size_t i = 0; i < weight.size(); ++i) {
      const bool decoupled = spec.kind == OptimizerKind::AdamW;
      const double g = gradients[i] + (decoupled ? 0 : spec.weight_decay * weight[i]);
      if (decoupled) weight[i] *= 1 - context.learning_rate * spec.weight_decay;
      if (spec.kind == OptimizerKind::Sgd) {
        first[i] = context.step == 1 ? g : spec.momentum * first[i] + g;
        weight[i] -=
            context.learning_rate * (spec.nesterov ? g + spec.momentum * first[i] : first[i]);
        continue;
      }
      first[i] = spec.beta1 * first[i] + (1 - spec.beta1) * g;
      second[i] = spec.beta2 * second[i] + (1 - spec.beta2) * g * g;
      const double denominator =
          std::sqrt(second[i]) / std::sqrt(1 - std::pow(spec.beta2, count)) + spec.epsilon;
      weight[i] -=
          context.learning_rate / (1 - std::pow(spec.beta1, count)) * first[i] / denominator;
    }
  }
};

enum class Memory { InPlace, OutOfPlace };

void expect_five_steps_match(const OptimizerSpec& spec, int64_t count, Memory memory,
                             bool transposed) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
  const auto arrange = [&](at::Tensor tensor) {
    return transposed ? tensor.view({2, count / 2}).t() : tensor;
  };
  at::Tensor weight = arrange(random_floats(count, 1));
  Reference reference(spec, weight);
  Tensors state;
  for (size_t i = 0; i < optimizer->state_names().size(); ++i)
    state.push_back(arrange(at::zeros({count})));
  for (int64_t step = 1; step <= 5; ++step) {
    const at::Tensor gradient = arrange(random_floats(count, static_cast<uint64_t>(10 + step)));
    const StepContext context{.learning_rate = 0.1 / static_cast<double>(step), .step = step};
    at::Tensor next = memory == Memory::InPlace ? weight : arrange(at::empty({count}));
    const std::vector<double> before = numbers(weight);
    optimizer->step(weight, gradient, next, state, context);
    if (memory == Memory::OutOfPlace) {
      ASSERT_EQ(numbers(weight), before) << "the old version must survive";
    }
    weight = next;
    reference.step(gradient, context);
  }
  const std::vector<double> result = numbers(weight);
  for (size_t i = 0; i < result.size(); ++i)
    ASSERT_NEAR(result[i], reference.weight[i], 2e-5) << "number " << i << " of " << count;
}

std::vector<OptimizerSpec> specs() {
  return {{.kind = OptimizerKind::Sgd, .momentum = 0.9, .weight_decay = 0.01},
          {.kind = OptimizerKind::Sgd, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
          {.kind = OptimizerKind::Sgd, .momentum = 0},
          {.kind = OptimizerKind::Sgd, .momentum = 0, .weight_decay = 0.1},
          {.kind = OptimizerKind::Adam},
          {.kind = OptimizerKind::Adam, .weight_decay = 0.01, .beta1 = 0.8, .beta2 = 0.95},
          {.kind = OptimizerKind::AdamW, .weight_decay = 0.1},
          {.kind = OptimizerKind::AdamW, .beta1 = 0.8, .beta2 = 0.95}};
}

TEST(Optimizer, FollowsTheFormulaForAnySizeInPlaceAndOut) {
  for (const OptimizerSpec& spec : specs()) {
    for (const int64_t count : {1, 7, 16, 33, 1000, 100'003}) {
      for (const Memory memory : {Memory::InPlace, Memory::OutOfPlace})
        expect_five_steps_match(spec, count, memory, false);
    }
  }
}

TEST(Optimizer, FollowsTheFormulaForTransposedTensors) {
  for (const OptimizerSpec& spec : specs()) {
    for (const Memory memory : {Memory::InPlace, Memory::OutOfPlace})
      expect_five_steps_match(spec, 34, memory, true);
  }
}

TEST(Optimizer, InPlaceAndOutOfPlaceGiveTheSameBits) {
  for (const OptimizerSpec& spec : specs()) {
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
    at::Tensor in_place = random_floats(4099, 1);
    const at::Tensor weight = in_place.clone();
    at::Tensor next = at::empty({4099});
    Tensors one, two;
    for (size_t i = 0; i < optimizer->state_names().size(); ++i) {
      one.push_back(at::zeros({4099}));
      two.push_back(at::zeros({4099}));
    }
    optimizer->step(in_place, random_floats(4099, 2), in_place, one, {});
    optimizer->step(weight, random_floats(4099, 2), next, two, {});
    EXPECT_TRUE(at::equal(in_place, next));
  }
}

/// So that a weight may be stepped in parts.
TEST(Optimizer, NumbersDoNotDependOnTheirPlace) {
  for (const OptimizerSpec& spec : specs()) {
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
    at::Tensor whole = random_floats(1000, 1);
    at::Tensor parts = whole.clone();
    Tensors state, state_of_parts;
    for (size_t i = 0; i < optimizer->state_names().size(); ++i) {
      state.push_back(at::zeros({1000}));
      state_of_parts.push_back(at::zeros({1000}));
    }
    for (int64_t step = 1; step <= 3; ++step) {
      const at::Tensor gradient = random_floats(1000, static_cast<uint64_t>(10 + step));
      optimizer->step(whole, gradient, whole, state, {.step = step});
      for (const auto& [begin, end] :
           {std::pair<int64_t, int64_t>{0, 501}, {501, 502}, {502, 1000}}) {
        at::Tensor part = parts.slice(0, begin, end);
        Tensors state_of_part;
        for (const at::Tensor& tensor : state_of_parts)
          state_of_part.push_back(tensor.slice(0, begin, end));
        optimizer->step(part, gradient.slice(0, begin, end), part, state_of_part, {.step = step});
      }
    }
    EXPECT_TRUE(at::equal(parts, whole)) << to_string(spec.kind);
    for (size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(at::equal(state_of_parts[i], state[i]));
  }
}

TEST(Optimizer, LeavesVersionCountersAlone) {
  for (const OptimizerSpec& spec : specs()) {
    for (const bool transposed : {false, true}) {
      const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
      const auto make = [&](uint64_t seed) {
        return transposed ? random_floats(6, seed).view({2, 3}).t() : random_floats(6, seed);
      };
      at::Tensor weight = make(1).detach().requires_grad_();
      Tensors state;
      for (size_t i = 0; i < optimizer->state_names().size(); ++i)
        state.push_back(at::zeros_like(weight).detach());
      const auto version = weight._version();
      const at::Tensor before = weight.detach().clone();
      optimizer->step(weight, make(2), weight, state, {});
      EXPECT_EQ(weight._version(), version);
      EXPECT_FALSE(at::equal(before, weight));
      EXPECT_TRUE(weight.requires_grad());
    }
  }
}

TEST(Optimizer, TakesGradientsInAnyLayout) {
  const std::unique_ptr<Optimizer> optimizer =
      make_optimizer({.kind = OptimizerKind::Sgd, .momentum = 0});
  const at::Tensor weight = at::zeros({2, 3});
  at::Tensor next = at::empty({2, 3});
  const at::Tensor gradient = random_floats(6, 1).view({3, 2}).t();
  optimizer->step(weight, gradient, next, {}, {.learning_rate = 1});
  EXPECT_TRUE(at::allclose(next, -gradient));
}

TEST(Optimizer, TensorsThatDisagreeAreAProgrammingError) {
  const std::unique_ptr<Optimizer> optimizer =
      make_optimizer({.kind = OptimizerKind::Sgd, .momentum = 0});
  at::Tensor weight = at::zeros({4});
  EXPECT_THROW(optimizer->step(weight, at::zeros({5}), weight, {}, {}), InternalError);
  EXPECT_THROW(optimizer->step(weight, at::Tensor(), weight, {}, {}), InternalError);
}

TEST(Optimizer, RefusesUnknownNamesAndValuesOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(parse_optimizer("lion"), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .momentum = 1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .momentum = nan}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .momentum = 0, .nesterov = true}),
               ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .nesterov = true}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .weight_decay = -1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .beta1 = -0.1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .beta2 = 1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .epsilon = 0}), ConfigError);
}

}  // namespace
}  // namespace penstock::model
