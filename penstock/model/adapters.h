// What a model has gained for fine-tuning: low-rank adapters (LoRA) beside products with frozen
// weights. Its trained weights alone, under these names, are an adapter as PEFT keeps it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::model {

struct Adapters {
  int64_t rank = 0;
  double alpha = 0;                  ///< the scale is alpha / rank
  std::vector<std::string> modules;  ///< paths, in the model's order; there is one
  /// Some of their weights are [in, out], as those of Conv1D of transformers.
  bool has_transposed = false;
};

}  // namespace penstock::model
