// The models that come with Penstock.
//
//   Model model = make_model({.name = "vgg16"});
//   Model wide = make_model({.name = "mlp", .width = 4096, .depth = 5});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/zoo/model_spec.h"

namespace penstock::model {

struct ZooEntry {
  std::string name;
  std::string description;
  Shape input_shape;
  int64_t classes;           ///< of language models: the tokens that they know
  bool takes_clips = false;  ///< input_shape is frames, numbers of a frame, words
};

/// In the order of kZooNames (zoo_names.h).
const std::vector<ZooEntry>& zoo();

/// Throws ConfigError: an unknown name (all names are listed), an option that the model does not
/// have, an input that is too small.
Model make_model(const ModelSpec& spec);

}  // namespace penstock::model
