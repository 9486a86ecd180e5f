// Sentences of tokens, and the rows that a model reads of them.
//
//   const at::Tensor batch = padded(rows_of(sentences, {3, 17}), {.behind = special.end}, 20);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "penstock/train/data/stored_array.h"

namespace penstock::train {

/// Sentences one behind the other.
struct Sentences {
  StoredArray tokens;            ///< [all tokens], whole numbers
  std::vector<int64_t> offsets;  ///< sentence i is [offsets[i], offsets[i + 1])

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t length(int64_t i) const {
    return offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)];
  }
};

/// Tokens that are no words.
struct SpecialTokens {
  int64_t pad = 0;
  int64_t begin = 2;  ///< of a sentence
  int64_t end = 3;
};

using TokenRows = std::vector<std::vector<int64_t>>;

/// The tokens of the sentences with these numbers. Throws InternalError for one that is not there.
TokenRows rows_of(const Sentences& sentences, const std::vector<int64_t>& numbers);

/// What a row has beside its sentence.
struct RowEnds {
  int64_t before = -1;  ///< a token; below 0: none
  int64_t behind = -1;  ///< likewise
  int64_t pad = 0;
};

/// int64 [rows, places]: what is longer is cut off.
at::Tensor padded(const TokenRows& rows, const RowEnds& ends, int64_t places);

/// Throws ConfigError for a token that a model does not know that knows those below `rows`; 0: any.
/// Messages call tokens `what`. Reads all sentences, block by block.
void check_tokens(const Sentences& sentences, const SpecialTokens& special, int64_t rows,
                  const char* what = "token");

}  // namespace penstock::train
