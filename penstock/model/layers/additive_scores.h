// The scores of additive attention, without the numbers of all pairs of places at once.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock::model {

/// weight . tanh(query_t + key_s) for all t and s (Bahdanau, Cho, Bengio 2015, appendix A.1.2):
/// query [batch, t, features], key [batch, s, features], weight [features]; the result
/// [batch, t, s]. Sample by sample, forward and again for the gradients: t * s * features numbers
/// exist of one sample at a time.
at::Tensor additive_scores(const at::Tensor& query, const at::Tensor& key,
                           const at::Tensor& weight);

}  // namespace penstock::model
