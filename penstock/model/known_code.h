// What a layer may say about its code, by deriving from this besides Layer. The profiler measures
// layers of equal code once (profiling/layer_classes.h).
//
//   class Scale final : public Layer, public KnownCode {
//     std::string code() const override { return "scale"; }
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::model {

class KnownCode {
 public:
  /// Everything but the shapes of inputs and weights that the time of the layer depends on:
  /// operations, in order, and their attributes. Two layers with the same text, the same shapes and
  /// the same types do the same work. The values of weights do not count.
  virtual std::string code() const = 0;
  /// Types of the outputs in single precision, one per output; empty: all float32.
  virtual std::vector<at::ScalarType> output_types() const { return {}; }
  /// A tensor with the type, sizes and strides that this output has for `batch` samples, and any
  /// numbers; on the CPU. Undefined: as output_shapes() and output_types() say, contiguous.
  virtual at::Tensor empty_output(size_t /*output*/, int64_t /*batch*/) const { return {}; }

 protected:
  ~KnownCode() = default;
};

}  // namespace penstock::model
