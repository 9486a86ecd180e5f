#include "penstock/runtime/fabric/local/shared_reduce.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace penstock::runtime {

void SharedReduce::start(int replica, Partials partials) {
  contributions_[static_cast<size_t>(replica)] = std::move(partials);
}

void SharedReduce::add(const at::Tensor& sum, const at::Tensor& part, int64_t begin,
                       int64_t length) const {
  if (is_short(precision_)) {
    add_rounded(precision_, sum.data_ptr<float>() + begin, part.data_ptr<float>() + begin,
                static_cast<size_t>(length));
  } else {
    sum.view(-1).narrow(0, begin, length).add_(part.view(-1).narrow(0, begin, length));
  }
}

void SharedReduce::round(const at::Tensor& sum, int64_t begin, int64_t length) const {
  if (is_short(precision_))
    round_in_place(precision_, sum.data_ptr<float>() + begin, static_cast<size_t>(length));
}

WaitResult SharedReduce::finish(int replica, model::Tensors& sums, Wait& wait) {
  const at::NoGradGuard no_grad;
  if (const WaitResult result = barrier_.wait(wait); result != WaitResult::Ready) return result;

  std::vector<const GroupGradients*> groups;
  for (const Partials& contribution : contributions_) {
    for (const GroupGradients& group : contribution) groups.push_back(&group);
  }
  std::sort(groups.begin(), groups.end(),
            [](const GroupGradients* a, const GroupGradients* b) { return a->group < b->group; });

  model::Tensors result(count());
  for (size_t i = 0; i < count(); ++i) {
    int64_t begin = 0;
    int64_t length = 0;
    // The first group that has this gradient lends its memory for the sum.
    for (const GroupGradients* group : groups) {
      const at::Tensor& part = group->sums[i];
      if (!part.defined()) continue;
      if (result[i].defined()) {
        if (length > 0) add(result[i], part, begin, length);
        continue;
      }
      result[i] = part;
      begin = part.numel() * replica / replicas_;
      length = part.numel() * (replica + 1) / replicas_ - begin;
      round(part, begin, length);
    }
    if (length > 0) round(result[i], begin, length);
  }
  const WaitResult waited = barrier_.wait(wait);
  if (waited != WaitResult::Ready) return waited;
  contributions_[static_cast<size_t>(replica)].clear();
  sums = std::move(result);
  return waited;
}

}  // namespace penstock::runtime
