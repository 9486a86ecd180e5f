#include "penstock/runtime/fabric/mesh/mesh_sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

std::vector<int64_t> numbers_of(const std::vector<model::Shape>& shapes) {
  std::vector<int64_t> numbers;
  for (const model::Shape& shape : shapes) numbers.push_back(c10::multiply_integers(shape));
  return numbers;
}

at::Tensor slice(const at::Tensor& gradient, const ShardRange& range) {
  return gradient.view(-1).narrow(0, range.begin, range.length);
}

}  // namespace

MeshSum::MeshSum(StageSumSetup setup, const std::vector<double>& shares)
    : setup_(std::move(setup)),
      rank_of_owner_(setup_.rank_of_replica),
      shards_(make_shards(numbers_of(setup_.shapes), setup_.bucket_ends, shares)),
      shards_of_bucket_(setup_.bucket_ends.size()) {
  rank_of_owner_.insert(rank_of_owner_.end(), setup_.rank_of_server.begin(),
                        setup_.rank_of_server.end());
  PENSTOCK_CHECK(shares.size() == rank_of_owner_.size(), shares.size(), rank_of_owner_.size());
  for (size_t s = 0; s < shards_.size(); ++s) shards_of_bucket_[shards_[s].bucket].push_back(s);
  owned_.resize(shards_.size());
  for (Owned& owned : owned_) {
    owned.contributions.resize(replicas());
    owned.missing = replicas();
  }
  buckets_.resize(replicas());
  for (auto& buckets : buckets_) buckets.resize(setup_.bucket_ends.size());
}

net::Tag MeshSum::tag(Phase phase, int replica, size_t shard, uint64_t round) const {
  return {.run = setup_.run,
          .channel = setup_.first_channel + 2 * static_cast<uint32_t>(replica) + phase,
          .sequence = round * shards_.size() + shard};
}

void MeshSum::fail(std::exception_ptr failure) {
  setup_.service->add(INT_MAX, [failure = std::move(failure)] { std::rethrow_exception(failure); });
}

// ---- owners

void MeshSum::begin() {
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (owns(shards_[s])) post_parts(s, 0);
  }
}

void MeshSum::post_parts(size_t shard, uint64_t round) {
  for (int replica = 0; replica < static_cast<int>(replicas()); ++replica) {
    if (setup_.is_here(replica)) continue;
    const RawMessage message =
        post_raw(setup_.mesh, setup_.rank_of_replica[static_cast<size_t>(replica)],
                 tag(Parts, replica, shard, round));
    message.transfer->on_end([weak = weak_from_this(), replica, shard,
                              parts = message.parts](net::Transfer::Result result) {
      const auto self = weak.lock();
      if (self && result == net::Transfer::Result::Done)
        self->on_parts(replica, shard, {.parts = parts, .transfer = nullptr});
    });
  }
}

void MeshSum::on_parts(int replica, size_t shard, const RawMessage& message) {
  try {
    Contribution contribution;
    net::WireReader head(message.head());
    contribution.groups = head.list<int64_t>();
    const std::vector<ShardRange>& ranges = shards_[shard].ranges;
    for (size_t i = 0; i < contribution.groups.size() * ranges.size(); ++i) {
      const at::Tensor part = message.tensor(i, at::kFloat);
      const int64_t expected = ranges[i % ranges.size()].length;
      if (part.defined() && part.numel() != expected) {
        throw TransportError(
            fmt::format("the replicas of a stage have gradients of different shapes: expected {} "
                        "numbers, found {}",
                        expected, part.numel()));
      }
      contribution.slices.push_back(part);
    }
    contribute(replica, shard, std::move(contribution));
  } catch (...) {
    fail(std::current_exception());
  }
}

void MeshSum::contribute(int replica, size_t shard, Contribution contribution) {
  MutexLock lock(mutex_);
  Owned& owned = owned_[shard];
  owned.contributions[static_cast<size_t>(replica)] = std::move(contribution);
  if (--owned.missing > 0) return;
  setup_.service->add(urgency(shards_[shard].bucket), [weak = weak_from_this(), shard] {
    if (const auto self = weak.lock()) self->add_up(shard);
  });
}

model::Tensors MeshSum::sum_of_shard(const Shard& shard,
                                     std::vector<Contribution> contributions) const {
  struct Place {
    int64_t group;
    const Contribution* contribution;
    size_t first;  ///< of its slices
  };
  std::vector<Place> order;
  const size_t count = shard.ranges.size();
  for (const Contribution& contribution : contributions) {
    for (size_t g = 0; g < contribution.groups.size(); ++g)
      order.push_back({contribution.groups[g], &contribution, g * count});
  }
  std::sort(order.begin(), order.end(),
            [](const Place& a, const Place& b) { return a.group < b.group; });
  model::Tensors sums(count);
  for (size_t i = 0; i < count; ++i) {
    for (const Place& place : order) {
      const at::Tensor& part = place.contribution->slices[place.first + i];
      if (!part.defined()) continue;
      // The first one lends its memory: nobody else needs it any more.
      if (sums[i].defined())
        sums[i].add_(part);
      else
        sums[i] = part;
    }
  }
  return sums;
}

void MeshSum::add_up(size_t number) {
  const at::NoGradGuard no_grad;
  const Shard& shard = shards_[number];
  std::vector<Contribution> contributions(replicas());
  uint64_t round = 0;
  {
    MutexLock lock(mutex_);
    Owned& owned = owned_[number];
    contributions.swap(owned.contributions);
    owned.missing = replicas();
    round = owned.round++;
  }
  const model::Tensors sums = sum_of_shard(shard, std::move(contributions));
  post_parts(number, round + 1);
  for (int replica = 0; replica < static_cast<int>(replicas()); ++replica) {
    if (setup_.is_here(replica)) {
      take_result(replica, number, sums);
      continue;
    }
    const OutgoingTensors out(sums);
    setup_.mesh.send(setup_.rank_of_replica[static_cast<size_t>(replica)],
                     tag(Results, replica, number, round), out.parts(), out.keep(),
                     urgency(shard.bucket));
  }
}

// ---- replicas

MeshSum::Contribution MeshSum::contribution_of(const Shard& shard, const Partials& partials) const {
  Contribution contribution;
  const size_t first = first_weight(shard.bucket);
  for (const GroupGradients& group : partials) {
    contribution.groups.push_back(group.group);
    for (const ShardRange& range : shard.ranges) {
      const at::Tensor& gradient = group.sums[range.weight - first];
      contribution.slices.push_back(gradient.defined() ? slice(gradient, range) : at::Tensor());
    }
  }
  return contribution;
}

void MeshSum::send_parts(int replica, size_t shard, uint64_t round, Contribution contribution) {
  net::WireWriter head;
  head.list(contribution.groups);
  send_raw(setup_.mesh, rank_of(shards_[shard]), tag(Parts, replica, shard, round), head.take(),
           std::move(contribution.slices), urgency(shards_[shard].bucket));
}

void MeshSum::post_result(int replica, size_t shard, uint64_t round, const model::Tensors& sums) {
  const Shard& of = shards_[shard];
  model::Tensors places;
  for (const ShardRange& range : of.ranges) {
    const at::Tensor& sum = sums[range.weight - first_weight(of.bucket)];
    places.push_back(sum.defined() ? slice(sum, range) : at::Tensor());
  }
  auto parts = std::make_shared<model::Tensors>();
  const auto place = [parts, places = std::move(places),
                      &ranges = of.ranges](const std::vector<uint64_t>& sizes) {
    if (sizes.size() != ranges.size())
      throw TransportError("sent a sum of gradients with another number of parts");
    std::vector<net::Memory> memory;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor& part = parts->emplace_back();
      if (sizes[i] != net::kAbsent) {
        part = places[i].defined() ? places[i] : at::empty({ranges[i].length}, at::kFloat);
        if (part.nbytes() != sizes[i]) {
          throw TransportError(fmt::format("sent a sum of gradients of {} bytes, expected {}",
                                           sizes[i], part.nbytes()));
        }
      }
      memory.push_back(memory_of(part));
    }
    return memory;
  };
  const auto transfer =
      setup_.mesh.receive(rank_of(of), tag(Results, replica, shard, round), place);
  transfer->on_end([weak = weak_from_this(), replica, shard, parts](net::Transfer::Result result) {
    const auto self = weak.lock();
    if (self && result == net::Transfer::Result::Done) self->take_result(replica, shard, *parts);
  });
}

void MeshSum::take_result(int replica, size_t number, const model::Tensors& parts) {
  const at::NoGradGuard no_grad;
  const Shard& shard = shards_[number];
  const size_t first = first_weight(shard.bucket);
  model::Tensors places;
  {
    MutexLock lock(mutex_);
    places = bucket_of(replica, shard.bucket).sums;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined()) continue;
    const ShardRange& range = shard.ranges[i];
    const at::Tensor& sum = places[range.weight - first];
    if (!sum.defined()) {
      MutexLock lock(mutex_);
      bucket_of(replica, shard.bucket)
          .pieces[range.weight - first]
          .push_back({range.begin, parts[i]});
    } else if (const at::Tensor place = slice(sum, range);
               place.data_ptr() != parts[i].data_ptr()) {
      place.copy_(parts[i]);
    }
  }
  MutexLock lock(mutex_);
  if (--bucket_of(replica, shard.bucket).missing == 0) changed_.notify_all();
}

void MeshSum::start(int replica, size_t number, Partials partials) {
  const at::NoGradGuard no_grad;
  const size_t count = setup_.bucket_ends[number] - first_weight(number);
  // The first group that has a gradient lends its memory for the sum: what another rank owns has
  // reached it before its result comes back.
  model::Tensors sums(count);
  for (size_t i = 0; i < count; ++i) {
    for (const GroupGradients& group : partials) {
      if (!sums[i].defined()) sums[i] = group.sums[i];
    }
  }
  uint64_t round = 0;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    Bucket& bucket = bucket_of(replica, number);
    PENSTOCK_CHECK(bucket.missing == 0 && bucket.sums.empty(), "bucket", number,
                   "is started before it is finished");
    bucket.sums = sums;
    bucket.pieces.assign(count, {});
    bucket.missing = shards_of_bucket_[number].size();
    round = bucket.round++;
  }
  for (const size_t s : shards_of_bucket_[number]) {
    if (!owns(shards_[s])) post_result(replica, s, round, sums);
  }
  for (const size_t s : shards_of_bucket_[number]) {
    Contribution contribution = contribution_of(shards_[s], partials);
    if (owns(shards_[s]))
      contribute(replica, s, std::move(contribution));
    else
      send_parts(replica, s, round, std::move(contribution));
  }
}

WaitResult MeshSum::finish(int replica, size_t number, model::Tensors& sums, Wait& wait) {
  const at::NoGradGuard no_grad;
  Bucket done;
  {
    const Stopwatch stopwatch(wait);
    MutexLock lock(mutex_);
    Bucket& bucket = bucket_of(replica, number);
    changed_.wait_until(mutex_, wait.deadline,
                        [&]() NO_THREAD_SAFETY_ANALYSIS { return closed_ || bucket.missing == 0; });
    if (closed_) return WaitResult::Closed;
    if (bucket.missing > 0) return WaitResult::TimedOut;
    done.sums.swap(bucket.sums);
    done.pieces.swap(bucket.pieces);
  }
  const size_t first = first_weight(number);
  for (size_t i = 0; i < done.sums.size(); ++i) {
    if (done.pieces[i].empty()) continue;
    done.sums[i] = at::empty(setup_.shapes[first + i], at::kFloat);
    for (const auto& [begin, piece] : done.pieces[i])
      done.sums[i].view(-1).narrow(0, begin, piece.numel()).copy_(piece);
  }
  sums = std::move(done.sums);
  return WaitResult::Ready;
}

void MeshSum::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace penstock::runtime
