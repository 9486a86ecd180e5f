// Which loss a model is trained with (loss.h): a plain value without tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::model {

struct LossSpec {
  /// "cross-entropy", "mean-squared-error", "binary-cross-entropy", or "model": the model's output
  /// is its loss. Empty: the model's own if it has one, otherwise cross-entropy.
  std::string name = {};
  /// cross-entropy: this share of a target's probability is spread over all classes (Szegedy et al.
  /// 2016, section 7); in [0, 1).
  double label_smoothing = 0;
  /// cross-entropy: targets of this value count nothing, as PyTorch's ignore_index.
  int64_t ignore_index = -100;
  /// What auxiliary answers of the model count (Model::auxiliary_weights). The model says it.
  std::vector<double> auxiliary_weights = {};
};

inline constexpr const char* kLossNames =
    "cross-entropy, mean-squared-error, binary-cross-entropy, model";

}  // namespace penstock::model
