// Builds models of sequences: what ModelBuilder has, and layers that read tokens or places.
//
//   SequenceBuilder net("tiny");
//   Value x = net.embedding(net.tokens("tokens", {64}, 256), {.values = 256, .features = 32});
//   x = net.layer_norm(net.position_embedding(x, Init::normal(0.02)));
//   x = net.linear(x, {.features = 3 * 32});
//   x = net.causal_attention(x, {.heads = 4});       // queries, keys and values in, [64, 32] out
//   Model model = net.build(net.linear(x, {.features = 256}));
//
// A sample of a sequence is [time] tokens or [time, features] numbers. Every call checks shapes and
// throws ConfigError naming the layer. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/builder.h"

namespace penstock::model {

/// What additive attention reads: queries [t, features], keys [s, features], values [s, numbers],
/// and the tokens [s] that keys and values stand for.
struct AttentionInputs {
  Value query;
  Value key;
  Value value;
  Value tokens;
};

class SequenceBuilder : public ModelBuilder {
 public:
  using ModelBuilder::ModelBuilder;

  /// A row of a table for each token: [places...] becomes [places..., features].
  Value embedding(const Value& tokens, const EmbeddingOptions& options);
  /// Adds a vector of its own to each place of [time, features].
  Value position_embedding(const Value& x, const Init& init, const std::string& name = "");
  /// Over the last dimension.
  Value layer_norm(const Value& x, const LayerNormOptions& options = {});
  /// Multi-head attention of [time, 3 * width], queries, keys and values side by side, to the same
  /// sequence; each place sees itself and those before it. Makes [time, width].
  Value causal_attention(const Value& x, const AttentionOptions& options);
  /// Normalised additive attention: [t, numbers], means of the values. Padding is not seen.
  Value additive_attention(const AttentionInputs& inputs, const std::string& name = "");
  /// [time, features] of each sentence from its last place to its first. `tokens` [time] say where
  /// it ends: behind them is padding, token 0, which stays where it is.
  Value reverse_sequence(const Value& x, const Value& tokens, const std::string& name = "");
  /// Side by side: [time, a] and [time, b] make [time, a + b].
  Value concat_features(const std::vector<Value>& parts, const std::string& name = "");
  /// Zeros before and behind the places, or so many places left out.
  Value pad_places(const Value& x, const PlacesOptions& options);
  Value cut_places(const Value& x, const PlacesOptions& options);
  /// Frames [frames, channels * side * side] one below the other, [channels, frames * side, side],
  /// so that convolutions read them; at the borders they see the neighbour.
  Value frames_to_sheet(const Value& x, int64_t channels, const std::string& name = "");
  /// Back: [channels, frames * height, width] makes [frames, channels * height * width].
  Value sheet_to_frames(const Value& x, int64_t frames, const std::string& name = "");
  /// torch.nn.LSTM of one layer and direction: [time, features], the states zero at first.
  Value lstm(const Value& x, const LstmOptions& options);
  /// Dropout with one mask for all places of a sample.
  Value locked_dropout(const Value& x, double probability, const std::string& name = "");
  /// The approximation with tanh, as in GPT-2.
  Value gelu(const Value& x, const std::string& name = "");
};

}  // namespace penstock::model
