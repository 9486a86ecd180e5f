#include "penstock/runtime/fabric/local/local_gather.h"

#include <ATen/core/grad_mode.h>

namespace penstock::runtime {

WaitResult LocalGather::finish(int replica, Wait& wait) {
  const at::NoGradGuard no_grad;
  if (const WaitResult result = barrier_.wait(wait); result != WaitResult::Ready) return result;
  const auto self = static_cast<size_t>(replica);
  for (size_t other = 0; other < shares_.size(); ++other) {
    if (other == self) continue;
    for (size_t w = 0; w < weights_[self].size(); ++w) {
      const WeightRange& range = shares_[other][w];
      const bool is_same = weights_[self][w].data_ptr() == weights_[other][w].data_ptr();
      if (range.length == 0 || is_same) continue;
      weights_[self][w]
          .view(-1)
          .narrow(0, range.begin, range.length)
          .copy_(weights_[other][w].view(-1).narrow(0, range.begin, range.length));
    }
  }
  const WaitResult waited = barrier_.wait(wait);
  if (waited == WaitResult::Ready) weights_[self].clear();
  return waited;
}

}  // namespace penstock::runtime
