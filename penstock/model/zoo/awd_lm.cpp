// AWD-LSTM (Merity, Keskar, Socher 2018): LSTMs whose numbers are left out in several ways, each
// with one mask for all places. The head is the embedding, unless it is untied.
#include <fmt/format.h>

#include "penstock/model/sequence_builder.h"
#include "penstock/model/zoo/architectures.h"
#include "penstock/util/error.h"

namespace penstock::model::detail {
namespace {

/// Shares of what the outputs lose: the paper's on the Penn Treebank over its 0.4 (section 5).
struct DropoutShares {
  double inputs = 1;
  double hidden = 0.25 / 0.4;
  double embedding = 0.1 / 0.4;
  double weights = 0.5 / 0.4;
};
constexpr DropoutShares kShares;

constexpr double kBound = 0.1;

}  // namespace

Model make_awd_lm(const ModelSpec& spec) {
  SequenceBuilder net(spec.name);
  const double dropout = *spec.dropout;
  if (dropout * kShares.weights >= 1) {
    throw ConfigError(
        fmt::format("{}: weights lose {} times the outputs' share: a dropout below {} is expected, "
                    "found {}",
                    spec.name, kShares.weights, 1 / kShares.weights, dropout));
  }
  const auto locked = [&](const Value& x, double share, const std::string& name) {
    return dropout > 0 ? net.locked_dropout(x, dropout * share, name) : x;
  };
  Value x = net.embedding(net.tokens("tokens", spec.input_shape, spec.classes),
                          {.values = spec.classes,
                           .features = spec.embedding,
                           .dropout = dropout * kShares.embedding,
                           .name = "encoder",
                           .weight_init = Init::uniform(kBound)});
  x = locked(x, kShares.inputs, "lockdrop_input");
  for (int64_t i = 0; i < spec.depth; ++i) {
    const bool is_last = i + 1 == spec.depth;
    x = net.lstm(x, {.features = is_last ? spec.embedding : spec.width,
                     .weight_dropout = dropout * kShares.weights,
                     .name = fmt::format("rnns.{}", i),
                     .carries = true});
    x = is_last ? locked(x, 1, "lockdrop_output")
                : locked(x, kShares.hidden, fmt::format("lockdrop_{}", i));
  }
  x = net.linear(
      x, {.features = spec.classes, .name = "decoder", .weight_init = Init::uniform(kBound)});
  if (!spec.untied) net.tie("decoder", "weight", "encoder", "weight");
  return net.build(x);
}

}  // namespace penstock::model::detail
