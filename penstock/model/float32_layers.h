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

/// Computes in float32 altogether, with 16 bits for inputs and outputs alone; or each operation in
/// the type that torch.autocast gives it, where the device has products of 16 bits.
class ComputesInFloat32 {
 public:
  /// Whether nothing but products, to which autocast gives 16 bits, reads its weights.
  virtual bool has_products_alone() const { return false; }

 protected:
  ~ComputesInFloat32() = default;
};

}  // namespace penstock::model
