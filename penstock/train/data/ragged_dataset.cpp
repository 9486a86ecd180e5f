#include "penstock/train/data/ragged_dataset.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "penstock/util/check.h"

namespace penstock::train {

namespace {

/// The parts one behind the other, each [n, length, ...], padded to the longest.
at::Tensor joined(const model::Tensors& parts, double padding) {
  if (parts.size() == 1) return parts.front();
  int64_t longest = 0;
  for (const at::Tensor& part : parts)
    longest = std::max(longest, part.dim() > 1 ? part.size(1) : 0);
  model::Tensors padded;
  for (const at::Tensor& part : parts) {
    if (part.dim() < 2 || part.size(1) == longest) {
      padded.push_back(part);
      continue;
    }
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes[1] = longest;
    padded.push_back(at::full(sizes, padding, part.options()));
    padded.back().narrow(1, 0, part.size(1)).copy_(part);
  }
  return at::cat(padded);
}

}  // namespace

RaggedDataset::RaggedDataset(std::vector<std::shared_ptr<const Dataset>> batches, SampleSpec sample,
                             int64_t ignore_index)
    : batches_(std::move(batches)), sample_(std::move(sample)), ignore_index_(ignore_index) {
  PENSTOCK_CHECK(!batches_.empty(), "no batches");
  int64_t end = 0;
  for (const auto& batch : batches_) ends_.push_back(end += batch->size());
}

std::vector<RaggedDataset::Part> RaggedDataset::parts_of(
    const std::vector<int64_t>& indices) const {
  std::vector<Part> parts;
  for (const int64_t index : indices) {
    PENSTOCK_CHECK(index >= 0 && index < size(), index, size());
    const auto b =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    const Dataset* batch = batches_[b].get();
    if (parts.empty() || parts.back().batch != batch) parts.push_back({batch, {}});
    parts.back().indices.push_back(index - (b == 0 ? 0 : ends_[b - 1]));
  }
  return parts;
}

model::Tensors RaggedDataset::inputs(const std::vector<int64_t>& indices) const {
  std::vector<model::Tensors> columns(sample_.inputs.size());
  for (const Part& part : parts_of(indices)) {
    model::Tensors inputs = part.batch->inputs(part.indices);
    for (size_t i = 0; i < columns.size(); ++i) columns[i].push_back(std::move(inputs[i]));
  }
  model::Tensors result;
  for (const model::Tensors& column : columns) result.push_back(joined(column, 0));
  return result;
}

at::Tensor RaggedDataset::targets(const std::vector<int64_t>& indices) const {
  if (!sample_.targets.needed) return {};
  model::Tensors column;
  for (const Part& part : parts_of(indices)) column.push_back(part.batch->targets(part.indices));
  return joined(column, sample_.targets.type == at::kLong ? static_cast<double>(ignore_index_) : 0);
}

std::vector<model::Shape> RaggedDataset::filled(const std::vector<int64_t>& indices) const {
  std::vector<model::Shape> sizes;
  for (const Part& part : parts_of(indices)) {
    const std::vector<model::Shape> own = part.batch->filled(part.indices);
    if (sizes.empty()) sizes = own;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!sizes[i].empty()) sizes[i].front() = std::max(sizes[i].front(), own[i].front());
    }
  }
  return sizes;
}

int64_t RaggedDataset::count_targets(const std::vector<int64_t>& indices) const {
  int64_t count = 0;
  for (const Part& part : parts_of(indices)) count += part.batch->count_targets(part.indices);
  return count;
}

}  // namespace penstock::train
