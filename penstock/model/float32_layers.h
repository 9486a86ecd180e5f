// What layers may say about precisions of 16 bits (precision.h), by deriving from these besides
// Layer.
//
//   class BatchNorm2d final : public Layer, public KeepsFloat32 {
#pragma once

namespace penstock::model {

/// Weights and statistics stay float32, as those of normalisation must.
class KeepsFloat32 {
 protected:
  ~KeepsFloat32() = default;
};

/// Computes in float32 altogether: only inputs and outputs have 16 bits.
class ComputesInFloat32 {
 protected:
  ~ComputesInFloat32() = default;
};

}  // namespace penstock::model
