#include "penstock/runtime/sums/bucket_path.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::runtime {

BucketSum BucketPath::wait_for(size_t bucket) {
  BucketSum sum;
  const auto scope = context_.device().enter_host();
  context_.block([&](Wait& wait) {
    return context_.fabric.finish_sum(context_.stage(), context_.replica.replica, bucket, sum,
                                      wait);
  });
  return sum;
}

FabricPath::FabricPath(const StageContext& context)
    : BucketPath(context, context.fabric.bucket_ends(context.stage())),
      in_background_(context.fabric.adds_in_background(context.stage())),
      given_(num_buckets()) {}

void FabricPath::start(const schedule::SumEvent& given, Partials partials) {
  const auto bucket = static_cast<size_t>(given.bucket);
  given_[bucket] = given;
  context_.fabric.start_sum(context_.stage(), context_.replica.replica, bucket,
                            on_host(std::move(partials)));
}

Partials FabricPath::on_host(Partials partials) {
  WorkerDevice& device = context_.device();
  if (device.is_host()) return partials;
  // One wait for all of them.
  Tensors all;
  for (GroupGradients& group : partials)
    std::move(group.sums.begin(), group.sums.end(), std::back_inserter(all));
  all = device.to_host(std::move(all));
  auto next = all.begin();
  for (GroupGradients& group : partials) {
    for (at::Tensor& sum : group.sums) sum = std::move(*next++);
  }
  return partials;
}

Tensors FabricPath::finish(size_t bucket) {
  BucketSum sum = wait_for(bucket);
  const auto most =
      static_cast<size_t>(std::max<int64_t>(context_.run.options().max_timeline_events, 0));
  schedule::SumEvent given = std::exchange(given_[bucket], {});
  if (sum.complete_ns > 0 && given.start_ns > 0 && events_.size() < most) {
    given.end_ns = sum.complete_ns;
    events_.push_back(given);
  }
  return context_.device().to_device(std::move(sum.sums));
}

Tensors FabricPath::shares_on_host(size_t bucket, const Tensors& places) {
  WorkerDevice& device = context_.device();
  const WeightStore& weights = context_.replica.weights;
  const size_t first = first_weight(bucket);
  Tensors own;
  for (size_t k = 0; k < places.size(); ++k) own.push_back(weights.own_part(first + k, places[k]));
  own = device.to_host(std::move(own));
  gathered_.resize(num_buckets());
  Tensors& here = gathered_[bucket];
  for (size_t k = here.size(); k < places.size(); ++k) here.push_back(device.host_like(places[k]));
  for (size_t k = 0; k < places.size(); ++k) weights.own_part(first + k, here[k]).copy_(own[k]);
  return here;
}

void FabricPath::start_gather(size_t bucket) {
  Tensors places = context_.replica.weights.places(first_weight(bucket), num_weights(bucket));
  if (!context_.device().is_host()) places = shares_on_host(bucket, places);
  context_.fabric.start_gather(context_.stage(), context_.replica.replica, bucket,
                               std::move(places));
}

void FabricPath::finish_gather(size_t bucket) {
  context_.block([&](Wait& wait) {
    return context_.fabric.finish_gather(context_.stage(), context_.replica.replica, bucket, wait);
  });
  if (context_.device().is_host()) return;
  const Tensors places = context_.replica.weights.places(first_weight(bucket), num_weights(bucket));
  for (size_t k = 0; k < places.size(); ++k)
    context_.device().compute().copy(places[k], gathered_[bucket][k]);
}

DevicePath::DevicePath(const StageContext& context, ReplicaExchange& exchange,
                       const Grouping& grouping)
    : BucketPath(context, {context.module().weight_offsets().back()}),
      sum_(exchange, context.device(), context.module().weight_shapes(), grouping,
           [this] { context_.meet_replicas(); }) {
  const std::vector<size_t>& offsets = context.module().weight_offsets();
  if (context.replica.shares_state) {
    shares_ = weight_shares(context.module().weight_shapes(), {offsets.begin() + 1, offsets.end()},
                            grouping.replicas);
  }
}

void DevicePath::start(const schedule::SumEvent& given, Partials partials) {
  // In the fabric, the numbers of a replica are its own group.
  const int replica = context_.replica.replica;
  at::Tensor numbers = sum_.start(given.mini_batch, std::move(partials));
  context_.fabric.start_sum(context_.stage(), replica, static_cast<size_t>(given.bucket),
                            {{replica, {std::move(numbers)}}});
}

Tensors DevicePath::finish(size_t bucket) { return sum_.finish(wait_for(bucket).sums.front()); }

void DevicePath::finish_gather(size_t) {
  sum_.gather(context_.replica.weights.places(0, ends().back()), shares_);
}

std::unique_ptr<BucketPath> make_bucket_path(const StageContext& context,
                                             const Grouping& grouping) {
  ReplicaExchange* const exchange = context.run.devices.exchanges[context.stage().index()].get();
  if (exchange == nullptr) return std::make_unique<FabricPath>(context);
  return std::make_unique<DevicePath>(context, *exchange, grouping);
}

}  // namespace penstock::runtime
