#include "penstock/train/data/dataset.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "penstock/model/device/staging.h"
#include "penstock/util/check.h"

namespace penstock::train {

std::string LeftOut::text() const {
  constexpr size_t kMostKinds = 8;
  std::string text;
  size_t kinds = 0;
  int64_t others = 0;
  for (const auto& [kind, count] : counts_) {
    if (count == 0) continue;
    if (++kinds > kMostKinds)
      others += count;
    else
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, kind);
  }
  return others == 0 ? text : fmt::format("{}, {} others", text, others);
}

std::vector<model::Shape> Dataset::filled(const std::vector<int64_t>&) const {
  return sizes_of(sample());
}

std::vector<model::Shape> Dataset::filled_with(const std::vector<int64_t>& indices, int64_t) const {
  return filled(indices);
}

model::Tensors Dataset::inputs_for_transfer(const std::vector<int64_t>& indices) const {
  return model::staged_for_transfer(inputs(indices));
}

model::Tensors Dataset::inputs_with_targets(const std::vector<int64_t>&,
                                            const std::vector<std::vector<int64_t>>&) const {
  PENSTOCK_CHECK(false, "the samples of", name(), "are no pairs of sentences");
}

int64_t Dataset::count_targets(const std::vector<int64_t>& indices) const {
  if (sample().count_targets) return sample().count_targets(inputs(indices));
  const auto count = static_cast<int64_t>(indices.size());
  const model::TargetSpec& targets = sample().targets;
  if (!targets.needed || targets.type != at::kLong) return count;
  return std::accumulate(targets.shape.begin(), targets.shape.end(), count, std::multiplies<>());
}

}  // namespace penstock::train
