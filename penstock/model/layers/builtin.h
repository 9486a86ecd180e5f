// The builtin layers. Each function that makes a layer checks its options and throws ConfigError;
// the shapes of inputs are checked by output_shapes().
#pragma once

#include <memory>

#include "penstock/model/known_code.h"
#include "penstock/model/layer.h"
#include "penstock/model/layers/options.h"

namespace penstock::model::detail {

using LayerPtr = std::shared_ptr<const Layer>;

class BuiltinLayer : public Layer, public KnownCode {
 public:
  bool is_random() const override { return false; }
  /// Right where shapes tell the rest.
  std::string code() const override { return kind(); }
};

LayerPtr make_conv2d(int64_t in_channels, const Conv2dOptions& options);
LayerPtr make_linear(int64_t in_features, const LinearOptions& options);
LayerPtr make_batch_norm2d(int64_t channels, const BatchNormOptions& options);
LayerPtr make_relu();
LayerPtr make_tanh();
LayerPtr make_gelu();
LayerPtr make_max_pool2d(const Pool2dOptions& options);
LayerPtr make_avg_pool2d(const Pool2dOptions& options);
LayerPtr make_adaptive_avg_pool2d(int64_t size);
LayerPtr make_flatten();
LayerPtr make_dropout(double probability);
LayerPtr make_locked_dropout(double probability);
LayerPtr make_add();
LayerPtr make_concat(int64_t parts);
LayerPtr make_concat_features(int64_t parts);
LayerPtr make_split(int64_t parts);
LayerPtr make_stack_logits(int64_t parts);
LayerPtr make_embedding(const EmbeddingOptions& options);
LayerPtr make_position_embedding(int64_t places, int64_t features, const Init& init);
LayerPtr make_layer_norm(int64_t features, const LayerNormOptions& options);
LayerPtr make_causal_attention(const AttentionOptions& options);
LayerPtr make_additive_attention(int64_t features);
LayerPtr make_reverse_sequence();
LayerPtr make_pad_places(const PlacesOptions& options);
LayerPtr make_cut_places(const PlacesOptions& options);
LayerPtr make_frames_to_sheet(int64_t channels);
LayerPtr make_sheet_to_frames(int64_t frames);
LayerPtr make_lstm(int64_t in_features, const LstmOptions& options);

}  // namespace penstock::model::detail
