// Which of the models that come with Penstock, and its options.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/model/layer.h"

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

}  // namespace penstock::model
