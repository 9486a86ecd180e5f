// The models that come with Penstock.
//
//   Model model = make_model({.name = "vgg16"});
//   Model wide = make_model({.name = "mlp", .width = 4096, .depth = 5});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/model.h"

namespace penstock::model {

struct ModelSpec {
  std::string name;
  Shape input_shape = {};  ///< empty: the model's default
  int64_t classes = 0;     ///< 0: the model's default
  /// mlp, tied_mlp: (largest) hidden width, 0: 1024. partime: features of a convolution, 0: 16.
  int64_t width = 0;
  /// mlp: hidden layers, tied_mlp: layers of the encoder; 0: 3. partime: convolutions, 0: 10.
  int64_t depth = 0;
  int64_t kernel = 0;  ///< partime: side of the convolutions' kernels, odd; 0: 5
  /// partime: `classes` numbers for each pixel, [classes, height, width], instead of for the image.
  bool per_pixel = false;
};

struct ZooEntry {
  std::string name;
  std::string description;
  Shape input_shape;
  int64_t classes;
};

/// mlp, tied_mlp, lenet5, vgg_small, alexnet, vgg16, resnet18, resnet50, partime.
const std::vector<ZooEntry>& zoo();

/// Throws ConfigError: an unknown name (all names are listed), an option that the model does not
/// have, an input that is too small.
Model make_model(const ModelSpec& spec);

}  // namespace penstock::model
