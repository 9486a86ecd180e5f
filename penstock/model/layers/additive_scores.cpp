#include "penstock/model/layers/additive_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace penstock::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// tanh(query_t + key_s) of one sample, [t, s, features].
at::Tensor of_pairs(const at::Tensor& query, const at::Tensor& key) {
  return (query.unsqueeze(1) + key.unsqueeze(0)).tanh_();
}

class AdditiveScores : public Function<AdditiveScores> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& weight) {
    context->save_for_backward({query, key, weight});
    at::Tensor scores = at::empty({query.size(0), query.size(1), key.size(1)}, query.options());
    for (int64_t sample = 0; sample < query.size(0); ++sample)
      scores[sample].copy_(of_pairs(query[sample], key[sample]).matmul(weight));
    return scores;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& query = saved[0];
    const at::Tensor& key = saved[1];
    const at::Tensor& weight = saved[2];
    variable_list result = {at::empty_like(query), at::empty_like(key), at::zeros_like(weight)};
    for (int64_t sample = 0; sample < query.size(0); ++sample) {
      const at::Tensor pairs = of_pairs(query[sample], key[sample]);
      const at::Tensor gradient = gradients.front()[sample];
      result[2].add_(gradient.reshape({1, -1}).mm(pairs.flatten(0, 1)).view(-1));
      // of the sums of which tanh is taken
      const at::Tensor inner = (1 - pairs * pairs).mul_(weight).mul_(gradient.unsqueeze(2));
      result[0][sample].copy_(inner.sum(1));
      result[1][sample].copy_(inner.sum(0));
    }
    return result;
  }
};

}  // namespace

at::Tensor additive_scores(const at::Tensor& query, const at::Tensor& key,
                           const at::Tensor& weight) {
  return AdditiveScores::apply(query, key, weight);
}

}  // namespace penstock::model
