#include "penstock/train/data/sentences.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::train {

TokenRows rows_of(const Sentences& sentences, const std::vector<int64_t>& numbers) {
  TokenRows rows;
  for (const int64_t number : numbers) {
    PENSTOCK_CHECK(number >= 0 && number < sentences.size(), number, sentences.size());
    const int64_t length = sentences.length(number);
    rows.emplace_back(static_cast<size_t>(length));
    if (length == 0) continue;
    const at::Tensor tokens =
        sentences.tokens.block(sentences.offsets[static_cast<size_t>(number)], length)
            .to(at::kLong)
            .contiguous();
    std::copy_n(tokens.data_ptr<int64_t>(), length, rows.back().begin());
  }
  return rows;
}

at::Tensor padded(const TokenRows& rows, const RowEnds& ends, int64_t places) {
  at::Tensor result = at::full({std::ssize(rows), places}, ends.pad, at::kLong);
  int64_t* place = result.data_ptr<int64_t>();
  for (const std::vector<int64_t>& row : rows) {
    std::vector<int64_t> whole;
    if (ends.before >= 0) whole.push_back(ends.before);
    whole.insert(whole.end(), row.begin(), row.end());
    if (ends.behind >= 0) whole.push_back(ends.behind);
    std::copy_n(whole.begin(), std::min<int64_t>(std::ssize(whole), places), place);
    place += places;
  }
  return result;
}

void check_tokens(const Sentences& sentences, const SpecialTokens& special, int64_t rows,
                  const char* what) {
  int64_t lowest = 0;
  int64_t highest = std::max(special.pad, std::max(special.begin, special.end));
  sentences.tokens.each_block([&](int64_t, const at::Tensor& block) {
    if (block.numel() == 0) return;
    lowest = std::min(lowest, block.min().item<int64_t>());
    highest = std::max(highest, block.max().item<int64_t>());
  });
  if (rows > 0 && (lowest < 0 || highest >= rows)) {
    throw ConfigError(fmt::format("the {} {} does not exist: the model knows those from 0 to {}",
                                  what, lowest < 0 ? lowest : highest, rows - 1));
  }
}

}  // namespace penstock::train
