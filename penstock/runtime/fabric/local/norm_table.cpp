#include "penstock/runtime/fabric/local/norm_table.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "penstock/runtime/fabric/gradient_norm.h"

namespace penstock::runtime {

NormTable::NormTable(int workers, std::vector<TieGroup> groups, size_t num_model_weights)
    : barrier_(workers),
      groups_(std::move(groups)),
      squares_{std::vector<double>(num_model_weights, 0.0),
               std::vector<double>(num_model_weights, 0.0)} {
  for (const TieGroup& group : groups_) ties_.emplace_back(group.copies);
}

at::Tensor NormTable::tied_sum(size_t group) const {
  const at::NoGradGuard no_grad;
  at::Tensor sum;
  int parts = 0;
  for (const at::Tensor& part : ties_[group]) {
    if (!part.defined()) continue;
    sum = sum.defined() ? sum + part : part;
    ++parts;
  }
  // Memory of a GPU belongs to the stream of the worker that gave the part.
  return parts == 1 && !sum.device().is_cpu() ? sum.clone() : sum;
}

WaitResult NormTable::combine(NormShare share, NormTotals& totals, Wait& wait) {
  std::vector<double>& squares = squares_[static_cast<size_t>(share.mini_batch.value % 2)];
  for (const NormShare::Squares& entry : share.squares) squares[entry.weight] = entry.sum;
  totals.tied_sums.clear();
  if (!ties_.empty()) {
    for (NormShare::Tied& tied : share.tied)
      ties_[tied.group][tied.copy] = std::move(tied.gradient);
    if (const WaitResult result = barrier_.wait(wait); result != WaitResult::Ready) return result;
    for (const size_t group : share.wanted) {
      if (!totals.tied_sums.contains(group)) totals.tied_sums[group] = tied_sum(group);
    }
    for (const auto& [group, sum] : totals.tied_sums) {
      // Counted once, by the worker of the first copy.
      const bool counts = std::any_of(
          share.tied.begin(), share.tied.end(),
          [&](const NormShare::Tied& tied) { return tied.copy == 0 && tied.group == group; });
      // On a GPU everybody reads it, which waits until the sum is made: its parts are dropped
      // below.
      if (!counts && (!sum.defined() || sum.device().is_cpu())) continue;
      const double square = sum_of_squares(sum);
      if (counts && groups_[group].counts) squares[groups_[group].weight] = square;
    }
  }
  if (const WaitResult result = barrier_.wait(wait); result != WaitResult::Ready) return result;
  for (const NormShare::Tied& tied : share.tied) ties_[tied.group][tied.copy].reset();
  double sum = 0;
  for (const double entry : squares) sum += entry;
  totals.norm = std::sqrt(sum);
  return WaitResult::Ready;
}

}  // namespace penstock::runtime
