// Which of the models that come with Penstock, and its options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/model/layer.h"

namespace penstock::model {

/// An option that a model does not have must not be chosen. zoo.cpp has the models' own values,
/// which are taken for 0 and for nothing.
struct ModelSpec {
  std::string name;
  Shape input_shape = {};  ///< of one sample; empty: the model's own
  int64_t classes = 0;     ///< of language models: tokens that they know
  /// mlp, tied_mlp: (largest) hidden width. partime: features of a convolution. Language models:
  /// numbers that stand for a place.
  int64_t width = 0;
  /// mlp: hidden layers. tied_mlp: layers of the encoder. partime: convolutions. gpt: blocks.
  /// s2vt: convolutions that read the frames, which are pictures then.
  int64_t depth = 0;
  int64_t kernel = 0;     ///< partime: side of the convolutions' kernels, odd
  int64_t heads = 0;      ///< gpt: heads of attention, which divide the width
  int64_t embedding = 0;  ///< awd_lm: numbers that stand for a token
  /// The share of numbers that are left out in training.
  std::optional<double> dropout = {};
  /// partime: `classes` numbers for each pixel, [classes, height, width], instead of for the image.
  bool per_pixel = false;
  /// gpt: the head has weights of its own, as runs with delayed weights need where stages part it
  /// from the embedding.
  bool untied = false;

  bool operator==(const ModelSpec&) const = default;
};

}  // namespace penstock::model
