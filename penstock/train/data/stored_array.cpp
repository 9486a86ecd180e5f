#include "penstock/train/data/stored_array.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "penstock/util/check.h"

namespace penstock::train {
namespace {

constexpr int64_t kNumbersPerBlock = 1 << 22;

int64_t product_of(const model::Shape& sizes, size_t from) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(from), sizes.end(), int64_t{1},
                         std::multiplies<>());
}

}  // namespace

bool has_channels_last(const model::Shape& found, const model::Shape& wanted) {
  return found.size() == 3 && wanted.size() == 3 && found != wanted &&
         wanted == model::Shape{found[2], found[0], found[1]};
}

StoredArray::StoredArray(at::Tensor numbers) : numbers_(std::move(numbers)) {
  if (!numbers_.defined()) return;
  stored_ = type_ = numbers_.scalar_type();
  sizes_ = numbers_.sizes().vec();
}

StoredArray::StoredArray(const void* first, const NumberType& type, model::Shape sizes,
                         bool column_major, std::shared_ptr<const void> owner)
    : stored_(type.stored), type_(type.becomes), convert_(type.convert), sizes_(std::move(sizes)) {
  const auto keep = [owner = std::move(owner)](void*) {};
  auto* const memory = const_cast<void*>(first);  // nobody writes
  const auto width = static_cast<int64_t>(c10::elementSize(stored_));
  const bool is_aligned = reinterpret_cast<uintptr_t>(first) % static_cast<uint64_t>(width) == 0;
  const auto from_memory = [&](const model::Shape& shape, at::ScalarType kind) {
    return at::from_blob(memory, shape, keep, at::TensorOptions().dtype(kind));
  };
  if (is_aligned || sizes_.empty() || column_major || product_of(sizes_, 0) == 0) {
    model::Shape order = sizes_;
    if (column_major) std::reverse(order.begin(), order.end());
    numbers_ = is_aligned ? from_memory(order, stored_)
                          : from_memory({product_of(order, 0) * width}, at::kByte)
                                .clone()
                                .view(stored_)
                                .view(order);
    if (!column_major) return;
    std::vector<int64_t> axes(order.size());
    std::iota(axes.rbegin(), axes.rend(), int64_t{0});
    numbers_ = numbers_.permute(axes);
    return;
  }
  numbers_ = from_memory({sizes_.front(), product_of(sizes_, 1) * width}, at::kByte);
}

StoredArray StoredArray::with_samples(const model::Shape& shape) const {
  StoredArray result = *this;
  const model::Shape found(sizes_.begin() + 1, sizes_.end());
  result.channels_last_ = has_channels_last(found, shape);
  PENSTOCK_CHECK(product_of(found, 0) == product_of(shape, 0), found.size(), shape.size());
  result.sizes_ = {sizes_.front()};
  result.sizes_.insert(result.sizes_.end(), shape.begin(), shape.end());
  if (numbers_.scalar_type() == stored_ && numbers_.is_contiguous() && !result.channels_last_)
    result.numbers_ = numbers_.view(result.sizes_);
  return result;
}

at::Tensor StoredArray::converted(at::Tensor rows) const {
  if (rows.scalar_type() != stored_) rows = rows.view(stored_);
  if (convert_ != nullptr) rows = convert_(rows);
  model::Shape sizes = sizes_;
  sizes.front() = rows.size(0);
  if (!channels_last_) return rows.reshape(sizes);
  return rows.reshape({sizes[0], sizes[2], sizes[3], sizes[1]}).permute({0, 3, 1, 2}).contiguous();
}

at::Tensor StoredArray::rows(const at::Tensor& places) const {
  return converted(numbers_.index_select(0, places));
}

at::Tensor StoredArray::block(int64_t first, int64_t count) const {
  const at::Tensor found = numbers_.narrow(0, first, count);
  return converted(found.scalar_type() == stored_ ? found : found.clone());
}

const at::Tensor* StoredArray::plain() const {
  const bool is_same = numbers_.scalar_type() == stored_ && convert_ == nullptr && !channels_last_;
  return is_same && numbers_.sizes() == at::IntArrayRef(sizes_) ? &numbers_ : nullptr;
}

int64_t StoredArray::rows_per_block() const {
  return std::max<int64_t>(1, kNumbersPerBlock / std::max<int64_t>(1, product_of(sizes_, 1)));
}

}  // namespace penstock::train
