// How long the sentences of a batch are, which are padded to one length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::model {

/// The token behind the last one of a sentence.
inline constexpr int64_t kPadding = 0;

/// Of tokens [batch, time]: the places up to the last one that is no padding, at least 1; int64
/// [batch, 1].
at::Tensor sequence_lengths(const at::Tensor& tokens);

}  // namespace penstock::model
