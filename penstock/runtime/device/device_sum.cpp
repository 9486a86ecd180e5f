#include "penstock/runtime/device/device_sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "penstock/runtime/fabric/mesh/wire_numbers.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::runtime {

using model::Tensors;
using PerReplica = ReplicaExchange::PerReplica;

namespace {

/// Of 16 bytes in float32.
constexpr int64_t kAligned = 4;

int64_t aligned(int64_t numbers) { return ceil_div(numbers, kAligned) * kAligned; }

int64_t numbers_of(const model::Shape& shape) {
  int64_t numbers = 1;
  for (const int64_t size : shape) numbers *= size;
  return numbers;
}

}  // namespace

DeviceSum::DeviceSum(ReplicaExchange& exchange, WorkerDevice& device,
                     std::vector<model::Shape> shapes, const Grouping& grouping,
                     std::function<void()> meet, int64_t piece_bytes)
    : exchange_(exchange),
      device_(device),
      shapes_(std::move(shapes)),
      grouping_(grouping),
      meet_(std::move(meet)) {
  const int64_t most = piece_bytes / static_cast<int64_t>(sizeof(float));
  for (size_t w = 0; w < shapes_.size(); ++w) {
    if (pieces_.empty() || pieces_.back().offsets.back() >= most)
      pieces_.push_back({.first = w, .offsets = {0}});
    std::vector<int64_t>& offsets = pieces_.back().offsets;
    offsets.push_back(offsets.back() + aligned(numbers_of(shapes_[w])));
  }
  // Every replica adds something, and so waits for what the others have read (gather()).
  const auto least = static_cast<int64_t>(exchange_.replicas()) * kAligned;
  for (Piece& piece : pieces_) piece.offsets.back() = std::max(piece.offsets.back(), least);
  contribution_.resize(pieces_.size());
}

size_t DeviceSum::place_of(int64_t group) const {
  const int64_t begin = first_micro_batch_ % grouping_.groups;
  return static_cast<size_t>(group >= begin ? group - begin : group + grouping_.groups - begin);
}

at::TensorOptions DeviceSum::on_device() const {
  return at::TensorOptions(at::kFloat).device(device_.compute().memory());
}

DeviceSum::Range DeviceSum::range_of(const Piece& piece, size_t replica) const {
  const auto replicas = static_cast<int64_t>(exchange_.replicas());
  const int64_t units = piece.offsets.back() / kAligned;
  const auto begin_of = [&](int64_t r) { return units * r / replicas * kAligned; };
  const int64_t begin = begin_of(static_cast<int64_t>(replica));
  return {begin, begin_of(static_cast<int64_t>(replica) + 1) - begin};
}

at::Tensor DeviceSum::flat(const Piece& piece, Tensors& gradients) const {
  Tensors parts;
  for (size_t k = 0; k + 1 < piece.offsets.size(); ++k) {
    at::Tensor& gradient = gradients[piece.first + k];
    const int64_t numbers = numbers_of(shapes_[piece.first + k]);
    // x + -0 is x, bit for bit, also where x is 0 or -0.
    parts.push_back(gradient.defined() ? gradient.view(-1)
                                       : at::full({numbers}, -0.0, on_device()));
    PENSTOCK_CHECK(parts.back().numel() == numbers && parts.back().scalar_type() == at::kFloat,
                   parts.back().numel(), numbers);
    const int64_t rest = piece.offsets[k + 1] - piece.offsets[k] - numbers;
    if (rest > 0) parts.push_back(at::zeros({rest}, on_device()));
    gradient.reset();
  }
  return (parts.size() == 1 ? parts.front() : at::cat(parts))
      .to(scalar_type(grouping_.gradient_precision));
}

at::Tensor DeviceSum::start(MiniBatchId mini_batch, Partials partials) {
  const at::NoGradGuard no_grad;
  first_micro_batch_ = mini_batch.value * grouping_.accumulate;
  at::Tensor numbers;
  {
    const auto scope = device_.enter_host();
    numbers = at::zeros({num_numbers(shapes_.size(), grouping_.accumulate)}, at::kFloat);
  }
  auto* const has_weight = numbers.data_ptr<float>();
  float* const has_group = has_weight + shapes_.size();
  for (GroupGradients& group : partials) {
    PENSTOCK_CHECK(group.sums.size() == shapes_.size(), group.sums.size(), shapes_.size());
    const size_t place = place_of(group.group);
    PENSTOCK_CHECK(place < static_cast<size_t>(grouping_.accumulate), group.group, place);
    has_group[place] = 1;
    for (size_t w = 0; w < shapes_.size(); ++w) {
      if (group.sums[w].defined()) has_weight[w] = 1;
    }
    for (size_t p = 0; p < pieces_.size(); ++p)
      contribution_[p][group.group] = flat(pieces_[p], group.sums);
  }
  return numbers;
}

std::vector<std::vector<int64_t>> DeviceSum::groups_of(const float* has_group) const {
  std::vector<std::vector<int64_t>> groups(exchange_.replicas());
  for (int64_t place = 0; place < grouping_.accumulate; ++place) {
    if (has_group[place] == 0) continue;
    const int64_t group = (first_micro_batch_ + place) % grouping_.groups;
    groups[static_cast<size_t>(group % grouping_.replicas)].push_back(group);
  }
  for (auto& of_replica : groups) std::sort(of_replica.begin(), of_replica.end());
  return groups;
}

void DeviceSum::exchange(PerReplica leaving, const PerReplica& places) {
  exchange_.exchange(grouping_.replica, std::move(leaving), places, meet_);
}

at::Tensor DeviceSum::add_part(size_t piece, const std::vector<std::vector<int64_t>>& groups) {
  const auto own = static_cast<size_t>(grouping_.replica);
  const Range range = range_of(pieces_[piece], own);
  PerReplica leaving(exchange_.replicas());
  PerReplica places(exchange_.replicas());
  std::map<int64_t, at::Tensor> parts;
  for (size_t q = 0; q < exchange_.replicas(); ++q) {
    const Range theirs = range_of(pieces_[piece], q);
    if (q == own) {
      for (const auto& [group, all] : contribution_[piece])
        parts[group] = all.narrow(0, range.begin, range.length);
      continue;
    }
    for (const auto& [group, all] : contribution_[piece])
      leaving[q].push_back(all.narrow(0, theirs.begin, theirs.length));
    for (const int64_t group : groups[q]) {
      at::Tensor place =
          at::empty({range.length}, on_device().dtype(scalar_type(grouping_.gradient_precision)));
      places[q].push_back(place);
      parts[group] = std::move(place);
    }
  }
  exchange(std::move(leaving), places);
  contribution_[piece].clear();
  at::Tensor sum;
  size_t added = 0;
  for (auto& [group, part] : parts) {
    at::Tensor wide = part.to(at::kFloat);
    if (++added == 1)
      sum = std::move(wide);
    else if (added == 2)
      sum = sum + wide;
    else
      sum.add_(wide);
  }
  return sum.to(scalar_type(grouping_.gradient_precision));
}

at::Tensor DeviceSum::add_up(const Piece& piece, const at::Tensor& own_part) {
  const auto own = static_cast<size_t>(grouping_.replica);
  Tensors parts(exchange_.replicas());
  PerReplica leaving(exchange_.replicas());
  PerReplica places(exchange_.replicas());
  for (size_t q = 0; q < exchange_.replicas(); ++q) {
    parts[q] = q == own ? own_part : at::empty({range_of(piece, q).length}, own_part.options());
    if (q == own) continue;
    leaving[q].push_back(own_part);
    places[q].push_back(parts[q]);
  }
  exchange(std::move(leaving), places);
  return at::cat(parts).to(at::kFloat);
}

Tensors DeviceSum::finish(const at::Tensor& added) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(added.defined() &&
                 added.numel() == num_numbers(shapes_.size(), grouping_.accumulate));
  const auto* const has_weight = added.data_ptr<float>();
  const std::vector<std::vector<int64_t>> groups = groups_of(has_weight + shapes_.size());
  Tensors sums(shapes_.size());
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Piece& piece = pieces_[p];
    const size_t count = piece.offsets.size() - 1;
    if (std::none_of(has_weight + piece.first, has_weight + piece.first + count,
                     [](float replicas) { return replicas > 0; })) {
      contribution_[p].clear();
      continue;
    }
    const at::Tensor whole = add_up(piece, add_part(p, groups));
    for (size_t k = 0; k < count; ++k) {
      const size_t w = piece.first + k;
      if (has_weight[w] == 0) continue;
      sums[w] = whole.narrow(0, piece.offsets[k], numbers_of(shapes_[w])).view(shapes_[w]);
    }
  }
  return sums;
}

void DeviceSum::gather(const Tensors& weights, const std::vector<WeightShare>& shares) {
  const at::NoGradGuard no_grad;
  const auto own = static_cast<size_t>(grouping_.replica);
  for (const Piece& piece : pieces_) {
    // One tensor for each share of the piece: the weights themselves are written to here.
    const auto parts_of = [&](size_t replica) {
      Tensors parts;
      for (size_t w = piece.first; w + 1 < piece.first + piece.offsets.size(); ++w) {
        const WeightRange& range = shares[replica][w];
        if (range.length > 0)
          parts.push_back(weights[w].view(-1).narrow(0, range.begin, range.length));
      }
      return parts;
    };
    const auto numbers_in = [](const Tensors& parts) {
      int64_t numbers = 0;
      for (const at::Tensor& part : parts) numbers += part.numel();
      return numbers;
    };
    PerReplica leaving(exchange_.replicas());
    PerReplica places(exchange_.replicas());
    const Tensors given = parts_of(own);
    const at::Tensor share = given.empty() ? at::empty({0}, on_device()) : at::cat(given);
    for (size_t q = 0; q < exchange_.replicas(); ++q) {
      if (q == own) continue;
      leaving[q].push_back(share);
      places[q].push_back(at::empty({numbers_in(parts_of(q))}, on_device()));
    }
    exchange(std::move(leaving), places);
    for (size_t q = 0; q < exchange_.replicas(); ++q) {
      if (q == own) continue;
      int64_t begin = 0;
      for (const at::Tensor& part : parts_of(q)) {
        part.copy_(places[q].front().narrow(0, begin, part.numel()));
        begin += part.numel();
      }
    }
  }
}

}  // namespace penstock::runtime
