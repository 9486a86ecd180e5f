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

/// The array with the wanted shape for each sample; sizes of 1 may be more or fewer.
at::Tensor fitted(const std::string& name, const at::Tensor& array, at::ScalarType type,
                  const model::Shape& shape) {
  if (array.dim() < 1)
    throw ConfigError(fmt::format("the array '{}' is one number, expected samples", name));
  if (array.size(0) < 1) throw ConfigError(fmt::format("the array '{}' has no samples", name));
  const model::Shape found(array.sizes().begin() + 1, array.sizes().end());
  model::Shape found_sides = found;
  model::Shape wanted_sides = shape;
  std::erase(found_sides, 1);
  std::erase(wanted_sides, 1);
  if (found_sides != wanted_sides) {
    throw ConfigError(fmt::format("the array '{}': expected samples of {}, found {}", name,
                                  describe(type, shape), describe(array.scalar_type(), found)));
  }
  const at::ScalarType kind = array.scalar_type();
  const bool is_number = at::isIntegralType(kind, /*includeBool=*/true) || kind == at::kHalf ||
                         kind == at::kBFloat16 || kind == at::kFloat || kind == at::kDouble;
  if (!is_number || array.layout() != at::kStrided || !array.device().is_cpu()) {
    throw ConfigError(
        fmt::format("the array '{}': expected whole or real numbers in the memory of this machine, "
                    "as {}, found {}{}",
                    name, describe(type, shape), array.toString(),
                    array.layout() == at::kStrided ? "" : ", sparse"));
  }
  const bool is_whole = at::isIntegralType(type, /*includeBool=*/true);
  if (is_whole && !at::isIntegralType(array.scalar_type(), /*includeBool=*/true)) {
    throw ConfigError(
        fmt::format("the array '{}': expected whole numbers ({}), found {}{}", name,
                    describe(type, shape), describe(array.scalar_type(), found),
                    name == "targets" ? "; the loss of real numbers is mean-squared-error" : ""));
  }
  std::vector<int64_t> sizes{array.size(0)};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return array.reshape(sizes);
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

  void finite(const std::string& name, const at::Tensor& array) {
    if (!at::isFloatingType(array.scalar_type())) return;
    // As it is trained with: float64 may be beyond it.
    const auto is_bad = [](const at::Tensor& numbers) {
      return numbers.to(at::kFloat).isfinite().logical_not();
    };
    const at::Tensor bad = is_bad(array.reshape({array.size(0), -1})).any(1);
    add(name, array, bad, is_bad, "holds");
  }

  /// `ignored`: allowed, too.
  void in_range(const std::string& name, const at::Tensor& array, int64_t end,
                const std::string& expected, std::optional<int64_t> ignored = {}) {
    const auto is_bad = [&](const at::Tensor& numbers) {
      // A bound beyond the array's own type would wrap around.
      const at::Tensor whole =
          at::isFloatingType(numbers.scalar_type()) ? numbers : numbers.to(at::kLong);
      at::Tensor bad = whole.lt(0).logical_or(whole.ge(end));
      if (ignored) bad = bad.logical_and(whole.ne(*ignored));
      return bad;
    };
    const at::Tensor rows = array.reshape({array.size(0), -1});
    add(name, array, is_bad(rows).any(1), is_bad, "holds", expected);
  }

  void between_0_and_1(const std::string& name, const at::Tensor& array) {
    const auto is_bad = [](const at::Tensor& numbers) {
      return numbers.lt(0).logical_or(numbers.gt(1));
    };
    add(name, array, is_bad(array.reshape({array.size(0), -1})).any(1), is_bad, "holds",
        ", expected 0 to 1");
  }

 private:
  template <class IsBad>
  void add(const std::string& name, const at::Tensor& array, const at::Tensor& bad,
           const IsBad& is_bad, const char* verb, const std::string& expected = "") {
    const at::Tensor places = bad.nonzero().reshape({-1});
    for (int64_t i = 0; i < places.numel() && i < static_cast<int64_t>(most_); ++i) {
      const auto index = places[i].template item<int64_t>();
      const at::Tensor row = array[index].reshape({-1});
      const at::Tensor number = row[is_bad(row).nonzero().reshape({-1})[0]];
      const std::string text = at::isFloatingType(array.scalar_type())
                                   ? fmt::to_string(number.template item<double>())
                                   : fmt::to_string(number.template item<int64_t>());
      found_.push_back({index, fmt::format("sample {} of '{}' {} {}{}", index, printable(name),
                                           verb, text, expected)});
    }
  }

  std::vector<TensorDataset::BadSample>& found_;
  size_t most_;
};

}  // namespace

TensorDataset::TensorDataset(std::string name, SampleSpec sample, model::Tensors inputs,
                             at::Tensor targets, int64_t ignore_index)
    : name_(std::move(name)),
      sample_(std::move(sample)),
      targets_(std::move(targets)),
      ignore_index_(ignore_index) {
  PENSTOCK_CHECK(!sample_.inputs.empty() && inputs.size() == sample_.inputs.size(), inputs.size(),
                 sample_.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const model::InputSpec& spec = sample_.inputs[i];
    inputs_.push_back(fitted(printable(spec.name), inputs[i], spec.type, spec.shape));
  }
  if (sample_.targets.needed) {
    if (!targets_.defined()) throw ConfigError("the loss needs targets, found none");
    targets_ = fitted("targets", targets_, sample_.targets.type, sample_.targets.shape);
  } else {
    targets_.reset();
  }
  const auto check_size = [&](const std::string& array, int64_t found) {
    if (found == size()) return;
    throw ConfigError(fmt::format("the array '{}' has {} samples, '{}' has {}", array, found,
                                  printable(sample_.inputs.front().name), size()));
  };
  for (size_t i = 1; i < inputs_.size(); ++i)
    check_size(printable(sample_.inputs[i].name), inputs_[i].size(0));
  if (!targets_.defined()) return;
  check_size("targets", targets_.size(0));
  if (sample_.targets.type != at::kLong) return;
  const at::Tensor counts =
      targets_.reshape({size(), -1}).to(at::kLong).ne(ignore_index_).sum(1).contiguous();
  if (counts.min().item<int64_t>() == numbers_in(sample_.targets.shape)) return;
  counts_.assign(counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + counts.numel());
}

model::Tensors TensorDataset::inputs(const std::vector<int64_t>& indices) const {
  const at::Tensor places = index_tensor(indices, size());
  model::Tensors batch;
  for (size_t i = 0; i < inputs_.size(); ++i)
    batch.push_back(inputs_[i].index_select(0, places).to(sample_.inputs[i].type));
  return batch;
}

model::Tensors TensorDataset::inputs_for_transfer(const std::vector<int64_t>& indices) const {
  const at::Tensor places = index_tensor(indices, size());
  model::Tensors batch;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    model::Shape sizes = inputs_[i].sizes().vec();
    sizes[0] = places.numel();
    at::Tensor there = model::empty_for_transfer(sizes, sample_.inputs[i].type);
    if (inputs_[i].scalar_type() == sample_.inputs[i].type)
      at::index_select_out(there, inputs_[i], 0, places);
    else
      there.copy_(inputs_[i].index_select(0, places));
    batch.push_back(std::move(there));
  }
  return batch;
}

at::Tensor TensorDataset::targets(const std::vector<int64_t>& indices) const {
  if (!targets_.defined()) return {};
  return targets_.index_select(0, index_tensor(indices, size())).to(sample_.targets.type);
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
