// GPT-2 (Radford et al. 2019): a decoder-only transformer whose head is its embedding. Layers are
// named as in Karpathy's nanoGPT, with weights of the same shapes.
#include <fmt/format.h>

#include <cmath>

#include "penstock/model/sequence_builder.h"
#include "penstock/model/zoo/architectures.h"

namespace penstock::model::detail {
namespace {

constexpr double kDeviation = 0.02;

class Gpt {
 public:
  explicit Gpt(const ModelSpec& spec) : net_(spec.name), spec_(spec) {}

  Model build() {
    Value x = net_.embedding(net_.tokens("tokens", spec_.input_shape, spec_.classes),
                             {.values = spec_.classes,
                              .features = spec_.width,
                              .name = "transformer.wte",
                              .weight_init = Init::normal(kDeviation)});
    x = net_.position_embedding(x, Init::normal(kDeviation), "transformer.wpe");
    x = dropped(x, "transformer.drop");
    for (int64_t i = 0; i < spec_.depth; ++i) x = block(x, fmt::format("transformer.h.{}", i));
    x = net_.layer_norm(x, {.name = "transformer.ln_f"});
    x = net_.linear(x, {.features = spec_.classes,
                        .bias = false,
                        .name = "lm_head",
                        .weight_init = Init::normal(kDeviation)});
    if (!spec_.untied) net_.tie("lm_head", "weight", "transformer.wte", "weight");
    return net_.build(x);
  }

 private:
  /// What a block adds is normalised before, not after ("pre-norm").
  Value block(const Value& x, const std::string& name) {
    Value y = net_.layer_norm(x, {.name = name + ".ln_1"});
    y = linear(y, 3 * spec_.width, name + ".attn.c_attn", kDeviation);
    y = net_.causal_attention(
        y, {.heads = spec_.heads, .dropout = *spec_.dropout, .name = name + ".attn"});
    y = dropped(linear(y, spec_.width, name + ".attn.c_proj", deviation_of_sums()),
                name + ".attn.resid_dropout");
    const Value middle = net_.add(x, y, name + ".add_1");
    y = net_.layer_norm(middle, {.name = name + ".ln_2"});
    y = net_.gelu(linear(y, 4 * spec_.width, name + ".mlp.c_fc", kDeviation), name + ".mlp.gelu");
    y = dropped(linear(y, spec_.width, name + ".mlp.c_proj", deviation_of_sums()),
                name + ".mlp.dropout");
    return net_.add(middle, y, name + ".add_2");
  }

  Value linear(const Value& x, int64_t features, const std::string& name, double deviation) {
    return net_.linear(
        x, {.features = features, .name = name, .weight_init = Init::normal(deviation)});
  }

  Value dropped(const Value& x, const std::string& name) {
    return *spec_.dropout > 0 ? net_.dropout(x, *spec_.dropout, name) : x;
  }

  /// So that the sum of all blocks does not grow with their number (section 2.3).
  double deviation_of_sums() const {
    return kDeviation / std::sqrt(2.0 * static_cast<double>(spec_.depth));
  }

  SequenceBuilder net_;
  const ModelSpec& spec_;
};

}  // namespace

Model make_gpt(const ModelSpec& spec) { return Gpt(spec).build(); }

}  // namespace penstock::model::detail
