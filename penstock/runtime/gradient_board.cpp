#include "penstock/runtime/gradient_board.h"

namespace penstock::runtime {

GradientBoard::GradientBoard(std::vector<WeightShare> shares)
    : shares_(std::move(shares)), complete_(shares_.size()) {
  const auto replicas = static_cast<int>(shares_.size());
  entries_.resize(shares_.front().size(),
                  {.given = model::Tensors(shares_.size()), .missing = replicas, .users = 0});
}

void GradientBoard::give(int replica, size_t weight, at::Tensor gradient) {
  MutexLock lock(mutex_);
  Entry& entry = entries_[weight];
  entry.given[static_cast<size_t>(replica)] = std::move(gradient);
  if (--entry.missing > 0) return;
  entry.missing = static_cast<int>(shares_.size());
  for (size_t r = 0; r < shares_.size(); ++r) {
    if (shares_[r][weight].length == 0) continue;
    ++entry.users;
    complete_[r].push_back(weight);
  }
}

std::optional<std::pair<size_t, model::Tensors>> GradientBoard::next(int replica) {
  MutexLock lock(mutex_);
  std::deque<size_t>& complete = complete_[static_cast<size_t>(replica)];
  if (complete.empty()) return std::nullopt;
  const size_t weight = complete.front();
  complete.pop_front();
  return std::pair(weight, entries_[weight].given);
}

void GradientBoard::done(size_t weight) {
  MutexLock lock(mutex_);
  Entry& entry = entries_[weight];
  if (--entry.users == 0) entry.given.assign(shares_.size(), {});
}

}  // namespace penstock::runtime
