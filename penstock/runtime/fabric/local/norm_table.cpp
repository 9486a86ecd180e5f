#include "penstock/runtime/fabric/local/norm_table.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

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
  for (const at::Tensor& part : ties_[group]) {
    if (part.defined()) sum = sum.defined() ? sum + part : part;
  }
  return sum;
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
    for (const NormShare::Tied& tied : share.tied) {
      // Counted once, by the worker of the first copy.
      if (tied.copy == 0)
        squares[groups_[tied.group].weight] = sum_of_squares(totals.tied_sums[tied.group]);
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
