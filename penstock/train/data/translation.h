// What a test set of sentences to be written has beside its tokens: texts to compare with, and how
// tokens become text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::train {

struct Translation {
  int64_t end = 3;  ///< the token that ends a sentence
  /// Of the test samples, in their order: at least one each.
  std::vector<std::vector<std::string>> references;
  /// Thread-safe.
  std::function<std::string(const std::vector<int64_t>& tokens)> text;
};

}  // namespace penstock::train
