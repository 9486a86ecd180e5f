#include "penstock/runtime/fabric/mesh/bucket_results.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/mesh/wire_numbers.h"
#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::runtime {

at::Tensor slice_of(const at::Tensor& gradient, const ShardRange& range) {
  return gradient.view(-1).narrow(0, range.begin, range.length);
}

net::Place place_of_sums(std::vector<ShardRange> ranges, model::Tensors places,
                         std::shared_ptr<model::Tensors> parts, FloatType precision) {
  return [ranges = std::move(ranges), places = std::move(places), parts = std::move(parts),
          type = scalar_type(precision)](const std::vector<uint64_t>& sizes) {
    if (sizes.size() != ranges.size()) {
      throw TransportError(fmt::format("sent a sum of gradients in {} parts, expected {}",
                                       sizes.size(), ranges.size()));
    }
    const model::MemoryScope scope(MemoryKind::Messages);
    std::vector<net::Memory> memory;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor& part = parts->emplace_back();
      if (sizes[i] != net::kAbsent) {
        part = places[i].defined() ? places[i] : at::empty({ranges[i].length}, type);
        if (part.nbytes() != sizes[i]) {
          throw TransportError(fmt::format("sent a sum of gradients of {} bytes, expected {}",
                                           sizes[i], part.nbytes()));
        }
      }
      memory.push_back(memory_of(part));
    }
    return memory;
  };
}

BucketResults::BucketResults(std::vector<model::Shape> shapes, std::vector<size_t> bucket_ends,
                             size_t replicas, const std::vector<Shard>& shards, FloatType precision,
                             bool own_shards_only)
    : shapes_(std::move(shapes)),
      ends_(std::move(bucket_ends)),
      shards_(shards),
      precision_(precision),
      own_shards_only_(own_shards_only),
      shards_of_bucket_(ends_.size()) {
  for (size_t s = 0; s < shards_.size(); ++s) shards_of_bucket_[shards_[s].bucket].push_back(s);
  buckets_.resize(replicas);
  for (auto& buckets : buckets_) buckets.resize(ends_.size());
}

model::Tensors BucketResults::slices(size_t shard, const model::Tensors& gradients) const {
  model::Tensors slices;
  const size_t first = first_weight(shards_[shard].bucket);
  for (const ShardRange& range : shards_[shard].ranges) {
    const at::Tensor& gradient = gradients[range.weight - first];
    slices.push_back(gradient.defined() ? slice_of(gradient, range) : at::Tensor());
  }
  return slices;
}

std::optional<uint64_t> BucketResults::begin(int replica, size_t number, model::Tensors sums) {
  MutexLock lock(mutex_);
  if (closed_) return std::nullopt;
  Bucket& bucket = bucket_of(replica, number);
  PENSTOCK_CHECK(bucket.missing == 0 && bucket.sums.empty(), "bucket", number,
                 "is started before it is finished");
  bucket.pieces.assign(sums.size(), {});
  bucket.sums = std::move(sums);
  const std::vector<size_t>& shards = shards_of_bucket_[number];
  const auto is_own = [&](size_t s) { return shards_[s].owner == static_cast<size_t>(replica); };
  bucket.missing = own_shards_only_
                       ? static_cast<size_t>(std::count_if(shards.begin(), shards.end(), is_own))
                       : shards.size();
  bucket.complete_ns = 0;
  return bucket.round++;
}

void BucketResults::aim(int replica, size_t number, model::Tensors sums) {
  MutexLock lock(mutex_);
  if (!closed_) bucket_of(replica, number).sums = std::move(sums);
}

net::Place BucketResults::place(int replica, size_t shard, std::shared_ptr<model::Tensors> parts) {
  const std::vector<ShardRange>& ranges = shards_[shard].ranges;
  // What comes in 16 bits is widened on its way to its place.
  model::Tensors places = is_short(precision_)
                              ? model::Tensors(ranges.size())
                              : slices(shard, sums_of(replica, shards_[shard].bucket));
  return place_of_sums(ranges, std::move(places), std::move(parts), precision_);
}

void BucketResults::put(int replica, size_t number, const model::Tensors& parts) {
  const at::NoGradGuard no_grad;
  const Shard& shard = shards_[number];
  const size_t first = first_weight(shard.bucket);
  const model::Tensors sums = sums_of(replica, shard.bucket);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined()) continue;
    const ShardRange& range = shard.ranges[i];
    const at::Tensor& sum = sums[range.weight - first];
    if (!sum.defined()) {
      MutexLock lock(mutex_);
      bucket_of(replica, shard.bucket)
          .pieces[range.weight - first]
          .push_back({range.begin, widened(parts[i])});
      continue;
    }
    write(parts[i], slice_of(sum, range));
  }
  MutexLock lock(mutex_);
  Bucket& bucket = bucket_of(replica, shard.bucket);
  if (--bucket.missing > 0) return;
  bucket.complete_ns = steady_ns();
  changed_.notify_all();
}

WaitResult BucketResults::finish(int replica, size_t number, BucketSum& sum, Wait& wait,
                                 net::ProgressEngine* engine) {
  const at::NoGradGuard no_grad;
  Bucket done;
  {
    const Stopwatch stopwatch(wait);
    if (engine != nullptr)
      net::watch_until(*engine, wait.deadline, [&] { return is_over(replica, number); });
    MutexLock lock(mutex_);
    Bucket& bucket = bucket_of(replica, number);
    changed_.wait_until(mutex_, wait.deadline,
                        [&]() NO_THREAD_SAFETY_ANALYSIS { return closed_ || bucket.missing == 0; });
    if (closed_) return WaitResult::Closed;
    if (bucket.missing > 0) return WaitResult::TimedOut;
    done.sums.swap(bucket.sums);
    done.pieces.swap(bucket.pieces);
    done.complete_ns = bucket.complete_ns;
  }
  for (size_t i = 0; i < done.sums.size(); ++i) {
    if (done.pieces[i].empty()) continue;
    // An asynchronous sum may have news of some shards of a weight only.
    if (!done.sums[i].defined())
      done.sums[i] = at::zeros(shapes_[first_weight(number) + i], at::kFloat);
    for (const auto& [begin, piece] : done.pieces[i])
      done.sums[i].view(-1).narrow(0, begin, piece.numel()).copy_(piece);
  }
  sum = {.sums = std::move(done.sums), .complete_ns = done.complete_ns};
  return WaitResult::Ready;
}

void BucketResults::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace penstock::runtime
