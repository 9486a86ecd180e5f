#include "penstock/train/data/tensor_dataset.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "penstock/model/device/staging.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

int64_t numbers_in(const model::Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// The array with the wanted shape for each sample.
StoredArray fitted(const std::string& name, const StoredArray& array, at::ScalarType type,
                   const model::Shape& shape) {
  const std::string why = array_misfit(name, array.type(), array.sizes(), type, shape);
  if (!why.empty()) throw ConfigError(why);
  return array.with_samples(shape);
}

/// A tensor of a program's own as an array.
StoredArray array_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.layout() == at::kStrided && tensor.device().is_cpu()))
    return tensor;
  throw ConfigError(
      fmt::format("the array '{}': expected whole or real numbers in the memory of this machine, "
                  "found {}{}",
                  name, tensor.toString(), tensor.layout() == at::kStrided ? "" : ", sparse"));
}

std::vector<StoredArray> arrays_of(const SampleSpec& sample, const model::Tensors& tensors) {
  std::vector<StoredArray> arrays;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool has_name = i < sample.inputs.size();
    arrays.push_back(array_of(has_name ? printable(sample.inputs[i].name) : "", tensors[i]));
  }
  return arrays;
}

at::Tensor index_tensor(const std::vector<int64_t>& indices, int64_t size) {
  for (const int64_t index : indices) PENSTOCK_CHECK(index >= 0 && index < size, index, size);
  return at::tensor(indices, at::TensorOptions().dtype(at::kLong));
}

/// Finds the samples of an array that cannot be trained with.
class Inspection {
 public:
  Inspection(std::vector<TensorDataset::BadSample>& found, size_t most)
      : found_(found), most_(most) {}

  void finite(const std::string& name, const StoredArray& array) {
    if (!at::isFloatingType(array.type())) return;
    // As it is trained with: float64 may be beyond it.
    add(name, array, "",
        [](const at::Tensor& numbers) { return numbers.to(at::kFloat).isfinite().logical_not(); });
  }

  /// `ignored`: allowed, too.
  void in_range(const std::string& name, const StoredArray& array, int64_t end,
                const std::string& expected, std::optional<int64_t> ignored = {}) {
    add(name, array, expected, [&](const at::Tensor& numbers) {
      // A bound beyond the array's own type would wrap around.
      const at::Tensor whole =
          at::isFloatingType(numbers.scalar_type()) ? numbers : numbers.to(at::kLong);
      at::Tensor bad = whole.lt(0).logical_or(whole.ge(end));
      if (ignored) bad = bad.logical_and(whole.ne(*ignored));
      return bad;
    });
  }

  void between_0_and_1(const std::string& name, const StoredArray& array) {
    add(name, array, ", expected 0 to 1",
        [](const at::Tensor& numbers) { return numbers.lt(0).logical_or(numbers.gt(1)); });
  }

 private:
  template <class IsBad>
  void add(const std::string& name, const StoredArray& array, const std::string& expected,
           const IsBad& is_bad) {
    size_t left = most_;
    array.each_block([&](int64_t first, const at::Tensor& block) {
      if (left == 0) return;
      const at::Tensor numbers = block.reshape({block.size(0), -1});
      const at::Tensor places = is_bad(numbers).any(1).nonzero().reshape({-1});
      for (int64_t i = 0; i < places.numel() && left > 0; ++i, --left) {
        const auto index = places[i].template item<int64_t>();
        const at::Tensor row = numbers[index];
        const at::Tensor number = row[is_bad(row).nonzero().reshape({-1})[0]];
        const std::string text = at::isFloatingType(array.type())
                                     ? fmt::to_string(number.template item<double>())
                                     : fmt::to_string(number.template item<int64_t>());
        found_.push_back({first + index, fmt::format("sample {} of '{}' holds {}{}", first + index,
                                                     printable(name), text, expected)});
      }
    });
  }

  std::vector<TensorDataset::BadSample>& found_;
  size_t most_;
};

}  // namespace

std::string array_misfit(const std::string& name, at::ScalarType kind, const model::Shape& sizes,
                         at::ScalarType type, const model::Shape& shape) {
  if (sizes.empty()) return fmt::format("the array '{}' is one number, expected samples", name);
  if (sizes.front() < 1) return fmt::format("the array '{}' has no samples", name);
  const model::Shape found(sizes.begin() + 1, sizes.end());
  model::Shape found_sides = found;
  model::Shape wanted_sides = shape;
  std::erase(found_sides, 1);
  std::erase(wanted_sides, 1);
  if (found_sides != wanted_sides && !has_channels_last(found, shape)) {
    return fmt::format("the array '{}': expected samples of {}, found {}{}", name,
                       describe(type, shape), describe(kind, found),
                       found.size() == shape.size()
                           ? "; pad or cut them to the model's size, or export it for any length"
                           : "; reshape them");
  }
  const bool is_number = at::isIntegralType(kind, /*includeBool=*/true) || kind == at::kHalf ||
                         kind == at::kBFloat16 || kind == at::kFloat || kind == at::kDouble;
  if (!is_number) {
    return fmt::format("the array '{}': expected whole or real numbers, as {}, found {}", name,
                       describe(type, shape), describe(kind, found));
  }
  const bool is_whole = at::isIntegralType(type, /*includeBool=*/true);
  if (!is_whole || at::isIntegralType(kind, /*includeBool=*/true)) return {};
  return fmt::format("the array '{}': expected whole numbers ({}), found {}{}", name,
                     describe(type, shape), describe(kind, found),
                     name == "targets" ? "; the loss of real numbers is mean-squared-error" : "");
}

TensorDataset::TensorDataset(std::string name, SampleSpec sample, const model::Tensors& inputs,
                             at::Tensor targets, int64_t ignore_index)
    : TensorDataset(std::move(name), sample, arrays_of(sample, inputs),
                    sample.targets.needed ? array_of("targets", targets) : StoredArray(),
                    ignore_index) {}

TensorDataset::TensorDataset(std::string name, SampleSpec sample, std::vector<StoredArray> inputs,
                             StoredArray targets, int64_t ignore_index)
    : name_(std::move(name)), sample_(std::move(sample)), ignore_index_(ignore_index) {
  PENSTOCK_CHECK(!sample_.inputs.empty() && inputs.size() == sample_.inputs.size(), inputs.size(),
                 sample_.inputs.size());
  const auto check_size = [&](const std::string& array, int64_t found) {
    if (found == size()) return;
    throw ConfigError(fmt::format("the array '{}' has {} samples, '{}' has {}", array, found,
                                  printable(sample_.inputs.front().name), size()));
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const model::InputSpec& spec = sample_.inputs[i];
    inputs_.push_back(fitted(printable(spec.name), inputs[i], spec.type, spec.shape));
    check_size(printable(spec.name), inputs_[i].size());
  }
  if (!sample_.targets.needed) return;
  if (!targets.defined()) throw ConfigError("the loss needs targets, found none");
  targets_ = fitted("targets", targets, sample_.targets.type, sample_.targets.shape);
  check_size("targets", targets_.size());
  if (sample_.targets.type == at::kLong) count_all_targets();
}

void TensorDataset::count_all_targets() {
  const int64_t all = numbers_in(sample_.targets.shape);
  bool all_count = true;
  targets_.each_block([&](int64_t, const at::Tensor& block) {
    const at::Tensor counts =
        block.to(at::kLong).reshape({block.size(0), -1}).ne(ignore_index_).sum(1).contiguous();
    const auto* const first = counts.data_ptr<int64_t>();
    counts_.insert(counts_.end(), first, first + counts.numel());
    all_count = all_count && counts.min().item<int64_t>() == all;
  });
  if (all_count) counts_ = {};
}

model::Tensors TensorDataset::inputs(const std::vector<int64_t>& indices) const {
  const at::Tensor places = index_tensor(indices, size());
  model::Tensors batch;
  for (size_t i = 0; i < inputs_.size(); ++i)
    batch.push_back(inputs_[i].rows(places).to(sample_.inputs[i].type));
  return batch;
}

model::Tensors TensorDataset::inputs_for_transfer(const std::vector<int64_t>& indices) const {
  const at::Tensor places = index_tensor(indices, size());
  model::Tensors batch;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    model::Shape sizes = inputs_[i].sizes();
    sizes[0] = places.numel();
    at::Tensor there = model::empty_for_transfer(sizes, sample_.inputs[i].type);
    const at::Tensor* const plain = inputs_[i].plain();
    if (plain != nullptr && plain->scalar_type() == sample_.inputs[i].type)
      at::index_select_out(there, *plain, 0, places);
    else
      there.copy_(inputs_[i].rows(places));
    batch.push_back(std::move(there));
  }
  return batch;
}

at::Tensor TensorDataset::targets(const std::vector<int64_t>& indices) const {
  if (!targets_.defined()) return {};
  return targets_.rows(index_tensor(indices, size())).to(sample_.targets.type);
}

int64_t TensorDataset::count_targets(const std::vector<int64_t>& indices) const {
  if (counts_.empty()) return Dataset::count_targets(indices);
  int64_t count = 0;
  for (const int64_t index : indices) count += counts_.at(static_cast<size_t>(index));
  return count;
}

std::vector<TensorDataset::BadSample> TensorDataset::bad_samples(size_t most) const {
  std::vector<BadSample> found;
  Inspection inspection(found, most);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const model::InputSpec& spec = sample_.inputs[i];
    inspection.finite(spec.name, inputs_[i]);
    if (spec.values > 0) {
      inspection.in_range(spec.name, inputs_[i], spec.values,
                          fmt::format("; the model's table has the rows 0 to {}", spec.values - 1));
    }
  }
  if (targets_.defined()) {
    inspection.finite("targets", targets_);
    if (sample_.targets.type == at::kLong) {
      inspection.in_range(
          "targets", targets_, sample_.targets.classes,
          fmt::format(", expected a class from 0 to {}", sample_.targets.classes - 1),
          ignore_index_);
    } else if (sample_.targets.are_probabilities) {
      inspection.between_0_and_1("targets", targets_);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const BadSample& a, const BadSample& b) { return a.index < b.index; });
  const auto same = [](const BadSample& a, const BadSample& b) { return a.index == b.index; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

}  // namespace penstock::train
