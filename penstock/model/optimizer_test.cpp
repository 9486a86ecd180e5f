#include "penstock/model/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/model/optimizers/testing_reference.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

using reference::numbers, reference::ReferenceOptimizer;

at::Tensor random_floats(int64_t count, uint64_t seed) {
  return at::empty({count}, at::TensorOptions().dtype(at::kFloat))
      .normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

enum class Memory { InPlace, OutOfPlace };

void expect_five_steps_match(const OptimizerSpec& spec, int64_t count, Memory memory,
                             bool transposed) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
  const auto arrange = [&](at::Tensor tensor) {
    return transposed ? tensor.view({2, count / 2}).t() : tensor;
  };
  at::Tensor weight = arrange(random_floats(count, 1));
  ReferenceOptimizer expected(spec, weight);
  Tensors state = optimizer->new_state(weight);
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
    expected.step(gradient, context);
  }
  const std::vector<double> result = numbers(weight);
  for (size_t i = 0; i < result.size(); ++i)
    ASSERT_NEAR(result[i], expected.weight()[i], 2e-6)
        << to_string(spec.kind) << ", number " << i << " of " << count;
}

std::vector<OptimizerSpec> specs() {
  std::vector<OptimizerSpec> all = reference::number_wise_specs();
  for (const OptimizerSpec& spec : reference::whole_weight_specs()) all.push_back(spec);
  return all;
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
    Tensors one = optimizer->new_state(weight);
    Tensors two = optimizer->new_state(weight);
    optimizer->step(in_place, random_floats(4099, 2), in_place, one, {});
    optimizer->step(weight, random_floats(4099, 2), next, two, {});
    EXPECT_TRUE(at::equal(in_place, next));
  }
}

/// So that a weight may be stepped in parts.
TEST(Optimizer, NumbersDoNotDependOnTheirPlace) {
  for (const OptimizerSpec& spec : reference::number_wise_specs()) {
    EXPECT_FALSE(traits(spec.kind).needs_whole_weight);
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
    at::Tensor whole = random_floats(1000, 1);
    at::Tensor parts = whole.clone();
    Tensors state = optimizer->new_state(whole);
    Tensors state_of_parts = optimizer->new_state(whole);
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
      Tensors state = optimizer->new_state(weight);
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

/// A weight that is zero has no length to be trusted: it takes the step as it is.
TEST(Optimizer, TrustIsOneWhereAWeightIsZero) {
  for (const OptimizerSpec& spec : reference::whole_weight_specs()) {
    at::Tensor weight = at::zeros({5});
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
    Tensors state = optimizer->new_state(weight);
    ReferenceOptimizer expected(spec, weight);
    const at::Tensor gradient = random_floats(5, 3);
    optimizer->step(weight, gradient, weight, state, {.learning_rate = 0.1});
    expected.step(gradient, {.learning_rate = 0.1});
    for (size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(numbers(weight)[i], expected.weight()[i], 1e-6) << to_string(spec.kind);
    EXPECT_GT(weight.norm().item<double>(), 0.01);
  }
}

/// 1 - beta of a float32 beta would be off in the fifth digit.
TEST(Optimizer, FollowsTheFormulaOverManySteps) {
  for (const OptimizerSpec& spec : specs()) {
    at::Tensor weight = random_floats(200, 1);
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
    Tensors state = optimizer->new_state(weight);
    ReferenceOptimizer expected(spec, weight);
    for (int64_t step = 1; step <= 200; ++step) {
      const StepContext context{.learning_rate = 0.01, .step = step};
      const at::Tensor gradient = random_floats(200, static_cast<uint64_t>(10 + step));
      optimizer->step(weight, gradient, weight, state, context);
      expected.step(gradient, context);
    }
    for (size_t i = 0; i < 200; ++i)
      ASSERT_NEAR(numbers(weight)[i], expected.weight()[i], 1e-5) << to_string(spec.kind);
  }
}

TEST(Optimizer, StatesHaveTheirShapesAndFirstNumbers) {
  const auto shapes = [](const OptimizerSpec& spec, at::IntArrayRef weight) {
    std::vector<std::vector<int64_t>> found;
    for (const at::Tensor& tensor : make_optimizer(spec)->new_state(at::zeros(weight)))
      found.push_back(tensor.sizes().vec());
    return found;
  };
  using Shapes = std::vector<std::vector<int64_t>>;
  const OptimizerSpec adafactor{.kind = OptimizerKind::Adafactor};
  EXPECT_EQ(shapes(adafactor, {4, 3}), (Shapes{{4, 1}, {1, 3}, {0}}));
  EXPECT_EQ(shapes(adafactor, {2, 4, 3}), (Shapes{{2, 4, 1}, {2, 1, 3}, {0}}));
  EXPECT_EQ(shapes(adafactor, {4}), (Shapes{{0}, {0}, {4}}));
  EXPECT_EQ(shapes({.kind = OptimizerKind::Muon}, {4, 3}), (Shapes{{4, 3}, {0}, {0}}));
  EXPECT_EQ(shapes({.kind = OptimizerKind::Muon, .as_matrix = false}, {4, 3}),
            (Shapes{{0}, {4, 3}, {4, 3}}));
  EXPECT_EQ(shapes({.kind = OptimizerKind::Soap}, {4, 3}),
            (Shapes{{4, 3}, {4, 3}, {4, 4}, {3, 3}, {4, 4}, {3, 3}}));
  EXPECT_EQ(shapes({.kind = OptimizerKind::Soap, .largest_side = 3}, {4, 3}),
            (Shapes{{4, 3}, {4, 3}, {0}, {3, 3}, {0}, {3, 3}}));
  EXPECT_EQ(shapes({.kind = OptimizerKind::Soap, .as_matrix = false}, {4, 3}),
            (Shapes{{4, 3}, {4, 3}, {0}, {0}, {0}, {0}}));
  EXPECT_EQ(shapes({.kind = OptimizerKind::RmsProp, .momentum = 0}, {4, 3}), (Shapes{{4, 3}}));
  const auto sums = make_optimizer({.kind = OptimizerKind::Adagrad, .initial_accumulator = 0.5})
                        ->new_state(at::zeros({3}));
  EXPECT_TRUE(at::equal(sums[0], at::full({3}, 0.5)));
}

/// After each step.
Tensors weights_after(const OptimizerSpec& spec, const at::Tensor& first,
                      const std::vector<at::Tensor>& gradients) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
  at::Tensor weight = first.clone();
  Tensors state = optimizer->new_state(weight);
  Tensors weights;
  for (size_t step = 0; step < gradients.size(); ++step) {
    optimizer->step(weight, gradients[step], weight, state,
                    {.learning_rate = 0.1, .step = static_cast<int64_t>(step) + 1});
    weights.push_back(weight.clone());
  }
  return weights;
}

std::vector<at::Tensor> random_matrices(int64_t count, at::IntArrayRef sizes) {
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(random_floats(sizes[0] * sizes[1], static_cast<uint64_t>(50 + i))
                      .view(sizes)
                      .to(at::kDouble));
  }
  return all;
}

/// Adam's steps depend on the basis in which a matrix is written; in eigenbases they do not.
TEST(Soap, ATurnedProblemHasTurnedSteps) {
  constexpr int64_t kSide = 5;
  constexpr int64_t kSteps = 25;
  const auto turned = [](const at::Tensor& matrix) {
    const auto turns = random_matrices(2, {kSide, kSide});
    const at::Tensor left = std::get<0>(at::linalg_qr(turns[0]));
    const at::Tensor right = std::get<0>(at::linalg_qr(turns[1]));
    return at::mm(at::mm(left, matrix), right);
  };
  const at::Tensor first = random_matrices(1, {kSide, kSide}).front();
  const auto gradients = random_matrices(kSteps, {kSide, kSide});
  std::vector<at::Tensor> turned_gradients;
  for (const at::Tensor& gradient : gradients) turned_gradients.push_back(turned(gradient));
  OptimizerSpec spec = usual_spec(OptimizerKind::Soap, {.weight_decay = 0.1});
  spec.basis_every = 3;
  for (const double largest : {10'000, 0}) {  // with 0 there are no eigenbases
    spec.largest_side = largest;
    const Tensors plain = weights_after(spec, first, gradients);
    const Tensors other = weights_after(spec, turned(first), turned_gradients);
    const bool is_same = at::allclose(turned(plain.back()), other.back(), 1e-8, 1e-9);
    EXPECT_EQ(is_same, largest > 0) << largest;
  }
}

/// As of an embedding, or of units that ReLU has switched off.
TEST(Soap, RowsWithoutGradientHaveABasisToo) {
  at::Tensor gradient = at::zeros({300, 16});
  gradient.narrow(0, 100, 40).copy_(random_floats(40 * 16, 71).view({40, 16}));
  OptimizerSpec spec = usual_spec(OptimizerKind::Soap);
  const Tensors weights = weights_after(spec, at::zeros({300, 16}), {gradient, gradient});
  EXPECT_TRUE(weights.back().isfinite().all().item<bool>());
  EXPECT_GT(weights.back().abs().max().item<double>(), 0);
}

TEST(Soap, WithoutBasesItIsAdamWOneStepLater) {
  const at::Tensor first = random_matrices(1, {4, 7}).front();
  const auto gradients = random_matrices(8, {4, 7});
  OptimizerSpec spec = usual_spec(OptimizerKind::Soap, {.weight_decay = 0.1});
  spec.largest_side = 3;
  const Tensors soap = weights_after(spec, first, gradients);
  EXPECT_TRUE(at::equal(soap.front(), first)) << "the first step makes bases alone";
  OptimizerSpec adamw = usual_spec(OptimizerKind::AdamW, {.weight_decay = 0.1});
  adamw.beta1 = spec.beta1;
  adamw.beta2 = spec.beta2;
  std::vector<at::Tensor> later;
  for (size_t step = 1; step < gradients.size(); ++step)
    later.push_back(gradients[step].to(at::kFloat));
  const Tensors expected = weights_after(adamw, first.to(at::kFloat), later);
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_TRUE(at::allclose(soap[step + 1].to(at::kFloat), expected[step], 1e-5, 1e-6)) << step;
}

/// One side only where the other is too long.
TEST(Soap, BasesAreOrthonormalAndDiagonalise) {
  constexpr int64_t kSteps = 200;
  const auto some = random_matrices(4, {3, 6});
  OptimizerSpec spec = usual_spec(OptimizerKind::Soap);
  spec.largest_side = 5;
  spec.basis_every = 1;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
  at::Tensor weight = at::zeros({3, 6}, at::kDouble);
  Tensors state = optimizer->new_state(weight);
  for (int64_t step = 1; step <= kSteps; ++step) {
    // The same four gradients, whose mean product is nearly constant: bases converge.
    optimizer->step(weight, some[static_cast<size_t>(step % 4)], weight, state,
                    {.learning_rate = 0, .step = step});
  }
  EXPECT_EQ(state[5].numel(), 0);
  const at::Tensor& basis = state[4];
  EXPECT_TRUE(at::allclose(at::mm(basis.t(), basis), at::eye(3, at::kDouble), 0, 1e-9));
  const at::Tensor seen = at::mm(at::mm(basis.t(), state[2]), basis);
  const at::Tensor values = seen.diag();
  EXPECT_LT((seen - values.diag()).abs().max().item<double>(), 0.1 * values.max().item<double>());
  EXPECT_GE(values[0].item<double>(), values[1].item<double>());
  EXPECT_GE(values[1].item<double>(), values[2].item<double>());
}

/// NAdam's product of momenta does not depend on which step asks first.
TEST(Optimizer, NAdamGoesOnFromAnyStep) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer({.kind = OptimizerKind::NAdam});
  const auto stepped = [&](int64_t step) {
    at::Tensor weight = at::ones({1});
    Tensors state = optimizer->new_state(weight);
    optimizer->step(weight, at::ones({1}), weight, state, {.learning_rate = 0.1, .step = step});
    return weight.item<double>();
  };
  const double tenth = stepped(10);
  const double last = stepped(1'000'000'000);
  EXPECT_EQ(stepped(10), tenth);
  EXPECT_EQ(stepped(1'000'000'000), last);
  EXPECT_NE(tenth, last);
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
  EXPECT_THROW(parse_optimizer("lyon"), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .momentum = 1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .momentum = nan}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .momentum = 0, .nesterov = true}),
               ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .nesterov = true}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Sgd, .weight_decay = -1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .beta1 = -0.1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .beta2 = 1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .epsilon = 0}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Lion, .amsgrad = true}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adam, .centered = true}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::RmsProp, .alpha = 1}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Lars, .trust = 0}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Adafactor, .clip = 0.5}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Muon, .iterations = 2.5}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Soap, .basis_every = 2.5}), ConfigError);
  EXPECT_THROW(make_optimizer({.kind = OptimizerKind::Soap, .basis_every = 0}), ConfigError);
}

}  // namespace
}  // namespace penstock::model
