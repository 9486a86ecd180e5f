// Google's neural machine translation (Wu et al. 2016) in the form that NVIDIA and PipeDream train:
// the decoder's first LSTM asks the attention, whose answer all later ones read. Layers are named
// as theirs, with weights of the same shapes.
#include <fmt/format.h>

#include "penstock/model/layers/sequence_lengths.h"
#include "penstock/model/sequence_builder.h"
#include "penstock/model/zoo/architectures.h"

namespace penstock::model::detail {
namespace {

constexpr double kInitialBound = 0.1;

/// Layers from this one on, counted from 0, add what they read to what they make.
constexpr int64_t kFirstResidual = 2;

class Gnmt {
 public:
  explicit Gnmt(const ModelSpec& spec) : net_(spec.name), spec_(spec) {}

  Model build() {
    const int64_t target_time = spec_.input_shape.back();
    source_ = net_.tokens("source", {spec_.input_shape.front()}, spec_.classes);
    const Value target = net_.tokens("target", {target_time}, spec_.classes);
    const Value context = encoder();
    return net_.build(decoder(target, context));
  }

 private:
  Value encoder() {
    Value x = embedding(source_, "encoder.embedder");
    // Each direction has weights of its own, in one module.
    const std::string first = "encoder.rnn_layers.0";
    const Value forward = lstm(x, {.name = first, .module = first});
    Value backward = net_.reverse_sequence(x, source_, first + ".reverse_input");
    backward = lstm(backward, {.name = first + "_reverse", .module = first, .suffix = "_reverse"});
    backward = net_.reverse_sequence(backward, source_, first + ".reverse_output");
    x = net_.concat_features({forward, backward}, first + ".concat");
    for (int64_t i = 1; i < spec_.depth; ++i) {
      const std::string name = fmt::format("encoder.rnn_layers.{}", i);
      const Value y = lstm(dropped(x, name + ".dropout"), {.name = name});
      x = i >= kFirstResidual ? net_.add(y, x, name + ".add") : y;
    }
    return x;
  }

  Value decoder(const Value& target, const Value& context) {
    Value x = embedding(target, "decoder.embedder");
    x = lstm(x, {.name = "decoder.att_rnn.rnn"});
    const Value answer = attention(x, context, "decoder.att_rnn.attn");
    for (int64_t i = 0; i + 1 < spec_.depth; ++i) {
      const std::string name = fmt::format("decoder.rnn_layers.{}", i);
      Value y = net_.concat_features({dropped(x, name + ".dropout"), answer}, name + ".concat");
      y = lstm(y, {.name = name});
      x = i + 1 >= kFirstResidual ? net_.add(y, x, name + ".add") : y;
    }
    return net_.linear(x, {.features = spec_.classes, .name = "decoder.classifier.classifier"});
  }

  /// Normalised Bahdanau attention: of each place of the target, the context's mean that it asks
  /// for.
  Value attention(const Value& query, const Value& context, const std::string& name) {
    const auto projected = [&](const Value& x, const std::string& part) {
      return net_.linear(x, {.features = spec_.width,
                             .bias = false,
                             .name = name + part,
                             .weight_init = Init::uniform(kInitialBound)});
    };
    return net_.additive_attention({.query = projected(query, ".linear_q"),
                                    .key = projected(context, ".linear_k"),
                                    .value = context,
                                    .tokens = source_},
                                   name);
  }

  Value embedding(const Value& tokens, const std::string& name) {
    return net_.embedding(tokens, {.values = spec_.classes,
                                   .features = spec_.width,
                                   .padding = kPadding,
                                   .name = name,
                                   .weight_init = Init::uniform(kInitialBound)});
  }

  Value lstm(const Value& x, LstmOptions options) {
    options.features = spec_.width;
    options.weight_init = Init::uniform(kInitialBound);
    return net_.lstm(x, options);
  }

  Value dropped(const Value& x, const std::string& name) {
    return *spec_.dropout > 0 ? net_.dropout(x, *spec_.dropout, name) : x;
  }

  SequenceBuilder net_;
  const ModelSpec& spec_;
  Value source_;
};

}  // namespace

Model make_gnmt(const ModelSpec& spec) { return Gnmt(spec).build(); }

}  // namespace penstock::model::detail
