#include "penstock/runtime/fabric/local/shared_reduce.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace penstock::runtime {

void SharedReduce::start(int replica, Partials partials) {
  contributions_[static_cast<size_t>(replica)] = std::move(partials);
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
    // The first group that has this gradient lends its memory for the sum.
    for (const GroupGradients* group : groups) {
      const at::Tensor& part = group->sums[i];
      if (!part.defined()) continue;
      if (!result[i].defined()) {
        result[i] = part;
        continue;
      }
      const int64_t size = part.numel();
      const int64_t begin = size * replica / replicas_;
      const int64_t length = size * (replica + 1) / replicas_ - begin;
      if (length > 0)
        result[i].view(-1).narrow(0, begin, length).add_(part.view(-1).narrow(0, begin, length));
    }
  }
  const WaitResult waited = barrier_.wait(wait);
  if (waited != WaitResult::Ready) return waited;
  contributions_[static_cast<size_t>(replica)].clear();
  sums = std::move(result);
  return waited;
}

}  // namespace penstock::runtime
