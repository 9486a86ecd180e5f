// Options of the builtin layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/model/layer.h"

namespace penstock::model {

struct Conv2dOptions {
  int64_t channels = 0;  ///< output channels
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = true;
  std::string name = {};  ///< empty: kind and a number, "conv2d_1"
  /// None: PyTorch's default, weight and bias uniform within 1 / sqrt(fan in). When given, the bias
  /// starts at 0.
  std::optional<Init> weight_init = {};
  std::optional<int64_t> kernel_width = {};   ///< none: the kernel is a square
  std::optional<int64_t> padding_width = {};  ///< left and right; none: as above and below
};
struct LinearOptions {
  int64_t features = 0;
  bool bias = true;
  std::string name = {};
  std::optional<Init> weight_init = {};  ///< as for Conv2dOptions
  /// The weight is [in_features, features] instead of [features, in_features], so that a decoder
  /// can share it with its encoder (tie()).
  bool transposed = false;
};
struct Pool2dOptions {
  int64_t kernel = 2;
  int64_t stride = 0;  ///< 0: the kernel
  int64_t padding = 0;
  std::string name = {};
};
struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;
  std::string name = {};
};
struct LayerNormOptions {
  double epsilon = 1e-5;
  std::string name = {};
};
struct EmbeddingOptions {
  int64_t values = 0;    ///< rows of the table: tokens lie in [0, values)
  int64_t features = 0;  ///< numbers in a row
  /// Of whole rows: a token that is left out is so at all of its places, in all samples of a
  /// micro-batch.
  double dropout = 0;
  std::optional<int64_t> padding = {};  ///< a token whose row is not trained
  std::string name = {};
  Init weight_init = Init::normal(1);  ///< as PyTorch's
};
struct LstmOptions {
  int64_t features = 0;
  /// Of the recurrent weight, with one mask for all places and samples of a micro-batch.
  double weight_dropout = 0;
  std::string name = {};
  /// None: PyTorch's default, uniform within 1 / sqrt(features).
  std::optional<Init> weight_init = {};
  /// The names of its weights in the state dict are "<module>.weight_ih_l0<suffix>" and so on;
  /// empty: the layer's.
  std::string module = {};
  std::string suffix = {};
  bool carries = false;  ///< its states can go on from window to window (Layer::carried())
};
struct PlacesOptions {
  int64_t before = 0;
  int64_t behind = 0;
  std::string name = {};
};
struct AttentionOptions {
  int64_t heads = 1;
  double dropout = 0;  ///< of the weights that the values are summed with
  std::string name = {};
};

}  // namespace penstock::model
