#include "penstock/model/layers/sequence_lengths.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

namespace penstock::model {

at::Tensor sequence_lengths(const at::Tensor& tokens) {
  const at::Tensor places = at::arange(1, tokens.size(1) + 1, tokens.options());
  return (tokens.ne(kPadding) * places).amax(1, /*keepdim=*/true).clamp_min(1);
}

}  // namespace penstock::model
