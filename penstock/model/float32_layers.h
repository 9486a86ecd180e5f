// What layers may say about precisions of 16 bits (precision.h), by deriving from these besides
// Layer.
//
//   class BatchNorm2d final : public Layer, public KeepsFloat32 {
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

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

/// Its outputs have the type of its first input.
class KeepsTypes {
 protected:
  ~KeepsTypes() = default;
};

/// May have types of 16 bits of its own, which its operations say: these hold in every precision.
class MayHaveOwnTypes {
 public:
  /// In which it reads its weights: float32 where they are of several types. Nothing: it has no
  /// types of its own.
  virtual std::optional<at::ScalarType> own_weight_type() const = 0;

 protected:
  ~MayHaveOwnTypes() = default;
};

}  // namespace penstock::model
