#include "penstock/runtime/sums/low_rank_sums.h"

#include <iterator>
#include <utility>

#include "penstock/runtime/ordered_sum.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

namespace {

/// Factors are rounded, not the gradients of groups.
Grouping unrounded(Grouping grouping) {
  grouping.gradient_precision = FloatType::Float32;
  return grouping;
}

}  // namespace

LowRankSums::LowRankSums(const StageContext& context, Grouping grouping)
    : StageSums(context),
      gradients_(context.module().weight_offsets().back(), unrounded(std::move(grouping))) {
  PENSTOCK_CHECK(context.replica.low_rank != nullptr, context.stage());
}

void LowRankSums::add(const Action& action, const Backward& backward) {
  Tensors rest = backward([&](const std::vector<size_t>& weights, Tensors& made) {
    gradients_.add_made(action.micro_batch, weights, made);
  });
  gradients_.add(action.micro_batch, std::move(rest));
}

Tensors LowRankSums::take_own(MiniBatchId mini_batch) {
  Tensors own =
      sum_of(gradients_.take_exclusive(mini_batch), context_.replica.low_rank->num_weights());
  for (const std::vector<size_t>& group : context_.replica.ties->inside) {
    at::Tensor sum;
    for (const size_t w : group) add_gradient(sum, std::exchange(own[w], {}));
    own[group.front()] = std::move(sum);
  }
  return context_.device().is_host() ? own : context_.device().to_host(std::move(own));
}

Tensors LowRankSums::sum(size_t list, Tensors parts) {
  Fabric& fabric = context_.fabric;
  const size_t weights = parts.size();
  // One process has one bucket, which is summed twice; each time half of it.
  const bool is_one = fabric.bucket_ends(context_.stage()).size() == 1;
  if (is_one) {
    Tensors all(2 * weights);
    std::move(parts.begin(), parts.end(),
              all.begin() + static_cast<std::ptrdiff_t>(list * weights));
    parts = std::move(all);
  }
  const int replica = context_.replica.replica;
  const size_t bucket = is_one ? 0 : list;
  Partials given;
  given.push_back({.group = replica, .sums = std::move(parts)});
  fabric.start_sum(context_.stage(), replica, bucket, std::move(given));
  BucketSum sum;
  const auto scope = context_.device().enter_host();
  context_.block(
      [&](Wait& wait) { return fabric.finish_sum(context_.stage(), replica, bucket, sum, wait); });
  if (!is_one) return std::move(sum.sums);
  const auto first = sum.sums.begin() + static_cast<std::ptrdiff_t>(list * weights);
  return {std::make_move_iterator(first),
          std::make_move_iterator(first + static_cast<std::ptrdiff_t>(weights))};
}

void LowRankSums::sync(const Action& action) {
  LowRankState& state = *context_.replica.low_rank;
  const Tensors first = sum(0, state.begin(take_own(action.mini_batch)));
  const Tensors second = sum(1, state.project(first));
  ready_ = state.finish(first, second, context_.run.steps_before + action.mini_batch.value);
  if (!context_.device().is_host()) ready_ = context_.device().to_device(std::move(*ready_));
  for (const std::vector<size_t>& group : context_.replica.ties->inside) {
    for (const size_t w : group) (*ready_)[w] = (*ready_)[group.front()];
  }
}

Tensors& LowRankSums::ready(MiniBatchId mini_batch) {
  PENSTOCK_CHECK(ready_.has_value(), "mini-batch", mini_batch, "has not been summed");
  return *ready_;
}

void LowRankSums::step(const Action& action) {
  context_.replica.weights.step(ready(action.mini_batch),
                                context_.step_context(action.version.value));
  ready_.reset();
}

}  // namespace penstock::runtime
