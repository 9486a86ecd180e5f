// What layers may say about micro-batches that they cannot train on, by deriving from this besides
// Layer.
//
//   class BatchNorm2d final : public Layer, public LimitsBatches {
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock::model {

class LimitsBatches {
 public:
  /// Why training on a micro-batch of so many samples would fail; empty: it would not. `outputs`:
  /// of one sample.
  virtual std::string why_not(int64_t samples, const std::vector<Shape>& outputs) const = 0;

 protected:
  ~LimitsBatches() = default;
};

inline constexpr const char* kOneNumberPerChannel =
    "batch normalisation needs more than one number per channel in training";

}  // namespace penstock::model
