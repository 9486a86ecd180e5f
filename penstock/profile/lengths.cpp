#include "penstock/profile/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/error.h"

namespace penstock::profile {

namespace {

/// Shares are read from texts.
constexpr double kRounding = 1e-6;

}  // namespace

void validate(const std::vector<LengthGroup>& lengths) {
  double sum = 0;
  for (const LengthGroup& group : lengths) {
    if (!(group.share > 0 && group.share <= 1 + kRounding)) {
      throw ConfigError(
          fmt::format("lengths: expected shares above 0 and at most 1, found {}", group.share));
    }
    sum += group.share;
    if (group.input_shapes.size() != lengths.front().input_shapes.size()) {
      throw ConfigError(fmt::format("lengths: expected the shapes of {} inputs, found {}",
                                    lengths.front().input_shapes.size(),
                                    group.input_shapes.size()));
    }
    for (size_t i = 0; i < group.input_shapes.size(); ++i) {
      const std::vector<int64_t>& shape = group.input_shapes[i];
      if (shape.size() != lengths.front().input_shapes[i].size()) {
        throw ConfigError(fmt::format("lengths: expected {} sizes of input {}, found {}",
                                      lengths.front().input_shapes[i].size(), i, shape.size()));
      }
      for (const int64_t size : shape) {
        if (size < 1)
          throw ConfigError(fmt::format("lengths: expected sizes of at least 1, found {}", size));
      }
    }
  }
  if (!lengths.empty() && std::abs(sum - 1) > kRounding)
    throw ConfigError(fmt::format("lengths: expected shares that add up to 1, found {}", sum));
}

std::string lengths_text(const std::vector<LengthGroup>& lengths) {
  std::string text;
  const size_t inputs = lengths.empty() ? 0 : lengths.front().input_shapes.size();
  for (size_t i = 0; i < inputs; ++i) {
    if (lengths.front().input_shapes[i].empty()) continue;
    int64_t shortest = lengths.front().input_shapes[i].front();
    int64_t longest = shortest;
    double mean = 0;
    for (const LengthGroup& group : lengths) {
      const int64_t size = group.input_shapes[i].front();
      shortest = std::min(shortest, size);
      longest = std::max(longest, size);
      mean += group.share * static_cast<double>(size);
    }
    const bool is_first = text.empty();
    text += fmt::format("{}{} to {}{} (mean {:.1f})", is_first ? "" : ", ", shortest, longest,
                        is_first ? " places" : "", mean);
  }
  return text;
}

}  // namespace penstock::profile
