#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "penstock/model/device/devices.h"
#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/model/torch_compat.h"
#include "penstock/model/works_on_parts.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

/// Masked multi-head attention of a sequence to itself (Vaswani et al. 2017, sections 3.2.1 and
/// 3.2.3). Input [time, 3 * width]: queries, keys and values side by side, the heads side by side
/// in each; output [time, width]. A place sees itself and those before it.
class CausalAttention final : public BuiltinLayer, public WorksOnParts {
 public:
  explicit CausalAttention(AttentionOptions options)
      : options_(std::move(options)), all_heads_(options_.heads) {}

  std::string kind() const override { return "causal_attention"; }
  std::string code() const override {
    const std::string whole =
        fmt::format("causal_attention heads {} dropout {}", options_.heads, options_.dropout);
    return options_.heads == all_heads_
               ? whole
               : fmt::format("{} from {} of {}", whole, first_head_, all_heads_);
  }
  int64_t units() const override { return options_.heads; }
  /// Whole heads, the same of queries, keys and values: three runs.
  std::shared_ptr<const Layer> on_part(const InputPart& part) const override {
    const int64_t size = part.whole / 3 / options_.heads;
    auto some = std::make_shared<CausalAttention>(*this);
    some->first_head_ = part.runs.front().begin / size;
    some->options_.heads = part.runs.front().length / size;
    return some;
  }
  bool is_random() const override { return options_.dropout > 0; }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    const Shape& in = inputs[0];
    if (in.size() != 2 || in[1] % (3 * options_.heads) != 0) {
      throw ConfigError(fmt::format(
          "expected an input of shape [time, 3 * width] with a width that {} heads divide, found "
          "{}",
          options_.heads, shape_text(in)));
    }
    return {{in[0], in[1] / 3}};
  }

  /// Two products of each head, and a softmax between them. The fused operation keeps a number per
  /// query, the other one the softmax, and with dropout its mask and their product.
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    const int64_t time = outputs[0][0];
    const int64_t size = outputs[0][1] / options_.heads;
    const int64_t heads = saturating_mul(batch, options_.heads);
    const int64_t queries = saturating_mul(heads, time);
    const int64_t scores = saturating_mul(queries, time);
    const profile::Operation compare = products(heads, {time, size, time});
    const profile::Operation sum = products(heads, {time, time, size});
    const profile::Operation softmax = normalization({scores, scores});
    profile::LayerWork work{.forward = {compare, softmax, sum},
                            .backward_weights = {},
                            .backward_inputs = {compare, compare, softmax, sum, sum},
                            .stash_bytes = tensor_bytes(saturating_add(
                                batch_numbers(outputs, batch), is_fused() ? queries : scores)),
                            .saves_outputs = is_fused()};
    if (!is_random()) return work;
    work.forward.push_back(elementwise({scores, scores, scores}));
    work.backward_inputs.push_back(elementwise({scores, scores, scores}));
    work.stash_bytes = saturating_add(work.stash_bytes, tensor_bytes(saturating_mul(2, scores)));
    return work;
  }

  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext& context) const override {
    const int64_t width = inputs[0].size(2) / 3;
    Tensors parts = inputs[0].split(width, 2);
    for (at::Tensor& part : parts)
      part = part.unflatten(2, std::vector<int64_t>{options_.heads, width / options_.heads})
                 .transpose(1, 2);
    const at::Tensor mask =
        context.training && is_random() ? drawn_mask(parts[0], context.seed) : at::Tensor();
    const at::Tensor result = is_fused() || !context.training
                                  ? fused_or_not(parts)
                                  : written_out(parts[0], parts[1], parts[2], mask);
    return {result.transpose(1, 2).flatten(2, 3)};
  }

 private:
  bool is_fused() const { return kHasFusedAttention && !is_random(); }

  static at::Tensor fused_or_not(const Tensors& parts) {
    return kHasFusedAttention ? fused_causal_attention(parts[0], parts[1], parts[2])
                              : written_out(parts[0], parts[1], parts[2], {});
  }

  /// [batch, heads, time, time], of all heads drawn.
  at::Tensor drawn_mask(const at::Tensor& query, uint64_t seed) const {
    at::Tensor mask =
        at::empty({query.size(0), all_heads_, query.size(2), query.size(2)}, query.options());
    mask.bernoulli_(1 - options_.dropout, installed_devices().generator(mask.device(), seed));
    return mask.narrow(1, first_head_, query.size(1)).mul(1 / (1 - options_.dropout));
  }

  /// Each [batch, heads, time, size]; `mask` may be undefined.
  static at::Tensor written_out(const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const at::Tensor& mask) {
    const int64_t time = query.size(2);
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    const at::Tensor seen = at::ones({time, time}, query.options().dtype(at::kBool)).tril();
    const at::Tensor scores =
        at::matmul(query * scale, key.transpose(2, 3))
            .masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
    const at::Tensor shares = at::softmax(scores, 3);
    return at::matmul(mask.defined() ? shares * mask : shares, value);
  }

  AttentionOptions options_;
  int64_t all_heads_;  ///< of the whole layer that this one is a part of
  int64_t first_head_ = 0;
};

}  // namespace

LayerPtr make_causal_attention(const AttentionOptions& options) {
  check_range(options.heads, 1, kMaxExtent, "heads");
  check_probability(options.dropout);
  return std::make_shared<CausalAttention>(options);
}

}  // namespace penstock::model::detail
