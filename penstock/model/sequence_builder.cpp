#include "penstock/model/sequence_builder.h"

#include <fmt/format.h>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"

namespace penstock::model {
namespace {

/// The number of features of [time, features].
int64_t features_of(const Value& x) {
  if (x.shape.size() != 2) {
    throw ConfigError(fmt::format("expected an input of shape [time, features], found {}",
                                  detail::shape_text(x.shape)));
  }
  return x.shape[1];
}

}  // namespace

Value SequenceBuilder::embedding(const Value& tokens, const EmbeddingOptions& options) {
  return apply_made("embedding", options.name, {tokens},
                    [&] { return detail::make_embedding(options); });
}

Value SequenceBuilder::position_embedding(const Value& x, const Init& init,
                                          const std::string& name) {
  return apply_made("position_embedding", name, {x}, [&] {
    const int64_t features = features_of(x);
    return detail::make_position_embedding(x.shape[0], features, init);
  });
}

Value SequenceBuilder::layer_norm(const Value& x, const LayerNormOptions& options) {
  return apply_made("layer_norm", options.name, {x}, [&] {
    return detail::make_layer_norm(x.shape.empty() ? 0 : x.shape.back(), options);
  });
}

Value SequenceBuilder::causal_attention(const Value& x, const AttentionOptions& options) {
  return apply_made("causal_attention", options.name, {x},
                    [&] { return detail::make_causal_attention(options); });
}

Value SequenceBuilder::additive_attention(const AttentionInputs& inputs, const std::string& name) {
  return apply_made("additive_attention", name,
                    {inputs.query, inputs.key, inputs.value, inputs.tokens},
                    [&] { return detail::make_additive_attention(features_of(inputs.query)); });
}

Value SequenceBuilder::reverse_sequence(const Value& x, const Value& tokens,
                                        const std::string& name) {
  return apply_made("reverse_sequence", name, {x, tokens}, detail::make_reverse_sequence);
}

Value SequenceBuilder::concat_features(const std::vector<Value>& parts, const std::string& name) {
  return apply_made("concat_features", name, parts, [&] {
    return detail::make_concat_features(static_cast<int64_t>(parts.size()));
  });
}

Value SequenceBuilder::frames_to_sheet(const Value& x, int64_t channels, const std::string& name) {
  return apply_made("frames_to_sheet", name, {x},
                    [&] { return detail::make_frames_to_sheet(channels); });
}

Value SequenceBuilder::sheet_to_frames(const Value& x, int64_t frames, const std::string& name) {
  return apply_made("sheet_to_frames", name, {x},
                    [&] { return detail::make_sheet_to_frames(frames); });
}

Value SequenceBuilder::pad_places(const Value& x, const PlacesOptions& options) {
  return apply_made("pad_places", options.name, {x},
                    [&] { return detail::make_pad_places(options); });
}

Value SequenceBuilder::cut_places(const Value& x, const PlacesOptions& options) {
  return apply_made("cut_places", options.name, {x},
                    [&] { return detail::make_cut_places(options); });
}

Value SequenceBuilder::lstm(const Value& x, const LstmOptions& options) {
  return apply_made("lstm", options.name, {x},
                    [&] { return detail::make_lstm(features_of(x), options); });
}

Value SequenceBuilder::locked_dropout(const Value& x, double probability, const std::string& name) {
  return apply_made("locked_dropout", name, {x},
                    [&] { return detail::make_locked_dropout(probability); });
}

Value SequenceBuilder::gelu(const Value& x, const std::string& name) {
  return apply_made("gelu", name, {x}, detail::make_gelu);
}

}  // namespace penstock::model
