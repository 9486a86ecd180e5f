#include "penstock/model/team.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace penstock::model {
namespace {

/// The first place of each member's slice of so many numbers, and their end: whole cache lines.
std::vector<int64_t> slices_of(int64_t numbers, int members) {
  constexpr int64_t kLine = 16;
  const int64_t lines = (numbers + kLine - 1) / kLine;
  std::vector<int64_t> begins;
  for (int m = 0; m <= members; ++m)
    begins.push_back(std::min(numbers, lines * m / members * kLine));
  return begins;
}

at::Tensor combined(const std::vector<at::Tensor>& parts, bool adds) {
  if (parts.size() == 1) return parts.front().clone();
  at::Tensor result = adds ? at::add(parts[0], parts[1]) : at::maximum(parts[0], parts[1]);
  for (size_t m = 2; m < parts.size(); ++m)
    adds ? result.add_(parts[m]) : at::maximum_out(result, result, parts[m]);
  return result;
}

std::vector<std::vector<int64_t>> sizes_along(const at::Tensor& like, int64_t dimension,
                                              const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int64_t>> sizes;
  for (const int64_t length : lengths) {
    sizes.push_back(like.sizes().vec());
    sizes.back()[static_cast<size_t>(dimension)] = length;
  }
  return sizes;
}

}  // namespace

at::Tensor Team::reduced(const at::Tensor& mine, bool adds) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = mine.contiguous().view({-1});
  const std::vector<int64_t> begins = slices_of(flat.numel(), size());
  std::vector<at::Tensor> slices;
  for (size_t m = 0; m + 1 < begins.size(); ++m)
    slices.push_back(flat.slice(0, begins[m], begins[m + 1]));
  const auto place = static_cast<size_t>(member());
  const std::vector<std::vector<int64_t>> own(
      static_cast<size_t>(size()), std::vector<int64_t>{begins[place + 1] - begins[place]});
  const at::Tensor share = combined(exchange(std::move(slices), own), adds);
  std::vector<std::vector<int64_t>> sizes;
  for (size_t m = 0; m + 1 < begins.size(); ++m) sizes.push_back({begins[m + 1] - begins[m]});
  const std::vector<at::Tensor> shares =
      exchange(std::vector<at::Tensor>(static_cast<size_t>(size()), share), sizes);
  return at::cat(shares).view(mine.sizes());
}

at::Tensor Team::sum(const at::Tensor& mine) { return reduced(mine, /*adds=*/true); }

at::Tensor Team::largest(const at::Tensor& mine) { return reduced(mine, /*adds=*/false); }

at::Tensor Team::gather(const at::Tensor& mine, int64_t dimension,
                        const std::vector<int64_t>& lengths) {
  const at::NoGradGuard no_grad;
  return at::cat(exchange(std::vector<at::Tensor>(static_cast<size_t>(size()), mine.contiguous()),
                          sizes_along(mine, dimension, lengths)),
                 dimension);
}

at::Tensor Team::sum_part(const at::Tensor& mine, int64_t dimension,
                          const std::vector<int64_t>& lengths) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : at::split_with_sizes(mine, lengths, dimension))
    parts.push_back(part.contiguous());
  const std::vector<int64_t> own(static_cast<size_t>(size()),
                                 lengths[static_cast<size_t>(member())]);
  return combined(exchange(std::move(parts), sizes_along(mine, dimension, own)), /*adds=*/true);
}

}  // namespace penstock::model
