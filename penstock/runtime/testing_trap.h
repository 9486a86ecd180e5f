// A layer that fails, for the tests of failures.
#pragma once

#include <ATen/TensorOperators.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock::runtime::testing {

/// Passes its input through until call number `fail_at`, counted from 0. Then it does what `what`
/// says, once.
class Trap : public model::Layer {
 public:
  enum class What {
    Throw,
    ThrowLate,  ///< when other workers have got as far as they can
    TorchError,
    Sleep
  };
  Trap(What what, int fail_at) : what_(what), left_(fail_at) {}
  std::string kind() const override { return "trap"; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext&) const override {
    if (left_.fetch_sub(1) == 0) {
      if (what_ == What::TorchError) return {inputs[0].view({-1, 7777})};
      if (what_ == What::ThrowLate) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (what_ != What::Sleep) throw std::logic_error("trap sprung");
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
    }
    return {inputs[0] * 1.0};
  }

 private:
  What what_;
  mutable std::atomic<int> left_;
};

}  // namespace penstock::runtime::testing
