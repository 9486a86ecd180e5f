#include "penstock/train/data/lengths.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {

namespace {

/// Whose samples are sorted together: enough for mini-batches of like lengths, few enough that an
/// epoch stays mixed.
constexpr int64_t kWindow = 100;

/// The places that a sample fills, in all inputs.
int64_t places_of(const std::vector<model::Shape>& sizes) {
  int64_t places = 0;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) places += sizes[i].empty() ? 0 : sizes[i].front();
  return places;
}

/// Sorted by length within each window.
void sort_windows(const Dataset& data, std::span<int64_t> order, int64_t window) {
  std::vector<std::pair<int64_t, int64_t>> keyed;
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(window)) {
    const size_t count = std::min(static_cast<size_t>(window), order.size() - begin);
    const std::span<int64_t> part = order.subspan(begin, count);
    keyed.clear();
    for (const int64_t index : part) keyed.emplace_back(places_of(data.filled({index})), index);
    std::stable_sort(keyed.begin(), keyed.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < count; ++i) part[i] = keyed[i].second;
  }
}

/// Runs of mini-batches in random order; the last run may be shorter.
void shuffle_runs(std::span<int64_t> order, const TrainingOrder& how) {
  const auto size = static_cast<size_t>(how.mini_batch_size * std::max<int64_t>(how.run, 1));
  std::vector<size_t> runs((order.size() + size - 1) / size);
  std::iota(runs.begin(), runs.end(), size_t{0});
  Rng(derive_seed(how.seed, hash_name("mini-batches"), how.epoch)).shuffle(std::span<size_t>(runs));
  const std::vector<int64_t> before(order.begin(), order.end());
  auto place = order.begin();
  for (const size_t run : runs) {
    const size_t begin = run * size;
    place = std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(begin),
                        std::min(size, before.size() - begin), place);
  }
}

/// The mean of each first size, rounded up.
std::vector<model::Shape> mean_sizes(const std::vector<std::vector<model::Shape>>& sizes) {
  std::vector<model::Shape> mean = sizes.front();
  for (size_t i = 0; i < mean.size(); ++i) {
    if (mean[i].empty()) continue;
    int64_t sum = 0;
    for (const std::vector<model::Shape>& one : sizes) sum += one[i].front();
    mean[i].front() = ceil_div(sum, std::ssize(sizes));
  }
  return mean;
}

std::vector<model::Shape> without_targets(std::vector<model::Shape> sizes) {
  sizes.pop_back();
  return sizes;
}

}  // namespace

std::vector<int64_t> stream_order(int64_t samples, int64_t streams) {
  const int64_t windows = samples / streams;
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(windows * streams));
  for (int64_t k = 0; k < windows; ++k) {
    for (int64_t stream = 0; stream < streams; ++stream) order.push_back(stream * windows + k);
  }
  return order;
}

std::vector<int64_t> training_order(const Dataset& data, const TrainingOrder& how) {
  if (how.streams > 0) return stream_order(data.size(), how.streams);
  std::vector<int64_t> order = epoch_order(data.size(), how.seed, how.epoch, how.shuffle);
  if (how.lengths != Lengths::Bucketed) return order;
  const int64_t full = data.size() - data.size() % how.mini_batch_size;
  const std::span<int64_t> whole(order.data(), static_cast<size_t>(full));
  sort_windows(data, whole, saturating_mul(kWindow, how.mini_batch_size));
  if (how.shuffle) shuffle_runs(whole, how);
  return order;
}

at::Tensor cut_to(const at::Tensor& tensor, const model::Shape& sizes) {
  if (!tensor.defined() || sizes.empty() || tensor.size(1) <= sizes.front()) return tensor;
  return tensor.narrow(1, 0, sizes.front()).contiguous();
}

std::vector<profile::LengthGroup> length_groups(const Dataset& data, const TrainingOrder& how,
                                                int64_t groups) {
  if (how.lengths == Lengths::Whole) return {};
  const std::vector<int64_t> order = training_order(data, how);
  std::vector<std::vector<model::Shape>> all;
  for (int64_t begin = 0; begin < std::ssize(order); begin += how.mini_batch_size) {
    const int64_t end = std::min(begin + how.mini_batch_size, std::ssize(order));
    all.push_back(data.filled({order.begin() + begin, order.begin() + end}));
  }
  const auto is_whole = [&](const auto& sizes) { return sizes == sizes_of(data.sample()); };
  if (all.empty() || std::ranges::all_of(all, is_whole)) return {};
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return places_of(a) < places_of(b); });
  const int64_t count = std::min(groups, std::ssize(all));
  std::vector<profile::LengthGroup> result;
  for (int64_t g = 0; g < count; ++g) {
    const int64_t begin = std::ssize(all) * g / count;
    const int64_t end = std::ssize(all) * (g + 1) / count;
    const std::vector<std::vector<model::Shape>> part(all.begin() + begin, all.begin() + end);
    const double share = static_cast<double>(end - begin) / static_cast<double>(std::ssize(all));
    std::vector<model::Shape> sizes = without_targets(mean_sizes(part));
    if (!result.empty() && result.back().input_shapes == sizes)
      result.back().share += share;
    else
      result.push_back({.share = share, .input_shapes = std::move(sizes)});
  }
  // Memory has to hold the longest, however rare it is.
  std::vector<model::Shape> longest = without_targets(all.back());
  if (longest != result.back().input_shapes && std::ssize(all) > count) {
    const double share = 1 / static_cast<double>(std::ssize(all));
    result.back().share -= share;
    result.push_back({.share = share, .input_shapes = std::move(longest)});
  }
  return result;
}

double filled_share(const Dataset& data) {
  constexpr int64_t kLooks = 1000;
  const int64_t whole = places_of(sizes_of(data.sample()));
  if (whole == 0) return 1;
  int64_t filled = 0;
  int64_t looks = 0;
  for (int64_t i = 0; i < data.size(); i += std::max<int64_t>(1, data.size() / kLooks), ++looks)
    filled += places_of(data.filled({i}));
  return looks == 0 ? 1 : static_cast<double>(filled) / static_cast<double>(whole * looks);
}

std::string why_not_shorter(const model::Model& model, const Dataset& data) {
  constexpr int64_t kLooks = 64;
  std::set<std::vector<model::Shape>> seen = {without_targets(sizes_of(data.sample()))};
  const int64_t step = std::max<int64_t>(1, data.size() / kLooks);
  for (int64_t i = 0; i < data.size(); i += step) {
    std::vector<model::Shape> sizes = without_targets(data.filled({i}));
    if (seen.contains(sizes)) continue;
    try {
      model.for_inputs(sizes);
    } catch (const ConfigError& error) {
      return error.what();
    }
    seen.insert(std::move(sizes));
  }
  return {};
}

}  // namespace penstock::train
