// The step that GPUs take, on the CPU: the same as weight by weight.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <vector>

#include "penstock/model/optimizer.h"
#include "penstock/model/optimizers/testing_reference.h"

namespace penstock::model {
namespace {

at::Tensor random(at::IntArrayRef sizes, uint64_t seed) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat))
      .normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
}

std::vector<OptimizerSpec> specs() {
  std::vector<OptimizerSpec> all = reference::number_wise_specs();
  for (const OptimizerSpec& spec : reference::whole_weight_specs()) all.push_back(spec);
  all.push_back({.kind = OptimizerKind::Adafactor, .weight_decay = 0.01});
  all.push_back({.kind = OptimizerKind::Muon, .momentum = 0.95, .nesterov = true});
  all.push_back({.kind = OptimizerKind::Muon, .weight_decay = 0.1, .as_matrix = false});
  all.push_back({.kind = OptimizerKind::Soap, .weight_decay = 0.1, .basis_every = 2});
  all.push_back({.kind = OptimizerKind::Soap, .as_matrix = false});
  return all;
}

void expect_same(const OptimizerSpec& spec, bool in_place) {
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(spec);
  std::vector<WeightStep> together;
  std::vector<WeightStep> single;
  for (const int64_t rows : {1, 3, 40}) {
    for (auto* steps : {&together, &single}) {
      WeightStep& step = steps->emplace_back();
      step.weight = random({rows, 17}, static_cast<uint64_t>(rows));
      step.state = optimizer->new_state(step.weight);
    }
  }
  for (int64_t number = 1; number <= 5; ++number) {
    const StepContext context{.learning_rate = 0.1, .step = number};
    std::vector<at::Tensor> before;
    for (size_t i = 0; i < together.size(); ++i) {
      for (auto* steps : {&together, &single}) {
        WeightStep& step = (*steps)[i];
        step.gradient = random(step.weight.sizes(), static_cast<uint64_t>(number));
        step.new_weight = in_place ? step.weight : at::empty_like(step.weight);
      }
      before.push_back(together[i].weight.clone());
      optimizer->step(single[i].weight, single[i].gradient, single[i].new_weight, single[i].state,
                      context);
    }
    optimizer->step_together(together, context);
    for (size_t i = 0; i < together.size(); ++i) {
      if (!in_place) {
        EXPECT_TRUE(at::equal(together[i].weight, before[i])) << "the old version must survive";
      }
      together[i].weight = together[i].new_weight;
      single[i].weight = single[i].new_weight;
      EXPECT_TRUE(at::allclose(together[i].weight, single[i].weight, 0, 2e-6))
          << to_string(spec.kind) << ", weight " << i << ", step " << number;
    }
  }
}

TEST(StepTogether, EqualsSingleStepsInPlaceAndOut) {
  for (const OptimizerSpec& spec : specs()) {
    for (const bool in_place : {true, false}) expect_same(spec, in_place);
  }
}

}  // namespace
}  // namespace penstock::model
