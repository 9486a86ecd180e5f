#include "penstock/runtime/fabric/delayed_sum.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

DelayedSum::DelayedSum(int replicas, size_t count, int64_t staleness)
    : count_(count), staleness_(staleness), replicas_(static_cast<size_t>(replicas)) {
  for (Replica& replica : replicas_) replica.missing.resize(count);
}

void DelayedSum::give(int number, const model::Tensors& update, bool last) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(update.empty() || update.size() == count_, update.size(), count_);
  Replica& giver = replicas_[static_cast<size_t>(number)];
  PENSTOCK_CHECK(!giver.waits && !giver.last, "replica", number, "gives before it takes");
  ++giver.rounds;
  giver.waits = true;
  giver.last = last;
  const auto end = giver.early.upper_bound(giver.rounds + staleness_);
  for (auto early = giver.early.begin(); early != end; ++early) add(giver, early->second);
  giver.early.erase(giver.early.begin(), end);
  for (Replica& replica : replicas_) {
    if (giver.rounds <= replica.rounds + staleness_) {
      add(replica, update);
      continue;
    }
    model::Tensors copy;
    for (const at::Tensor& tensor : update)
      copy.push_back(tensor.defined() ? tensor.clone() : at::Tensor());
    replica.early.emplace(giver.rounds, std::move(copy));
  }
}

void DelayedSum::add(Replica& replica, const model::Tensors& update) {
  for (size_t i = 0; i < update.size(); ++i) {
    if (!update[i].defined()) continue;
    at::Tensor& sum = replica.missing[i];
    if (sum.defined())
      sum.add_(update[i]);
    else
      sum = update[i].clone();
  }
}

std::optional<model::Tensors> DelayedSum::take(int number) {
  Replica& replica = replicas_[static_cast<size_t>(number)];
  if (!replica.waits) return std::nullopt;
  const int64_t needed = replica.last ? replica.rounds : replica.rounds - staleness_;
  for (const Replica& other : replicas_) {
    if (other.rounds < needed) return std::nullopt;
  }
  replica.waits = false;
  return std::exchange(replica.missing, model::Tensors(count_));
}

}  // namespace penstock::runtime
