#include "penstock/model/device/copies.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <tuple>

#include "penstock/model/torch_compat.h"
#include "penstock/util/check.h"

namespace penstock::model {

void copy_all(TensorSpan to, TensorSpan from) {
  PENSTOCK_CHECK(to.size() == from.size(), to.size(), from.size());
  const at::NoGradGuard no_grad;
  // libtorch copies many at once where their types and devices are the same.
  std::map<std::tuple<at::ScalarType, at::ScalarType>, std::pair<Tensors, Tensors>> together;
  for (size_t i = 0; i < to.size(); ++i) {
    if (!to[i].defined() || !from[i].defined()) continue;
    const at::Tensor target = to[i].variable_data();
    if (target.device().is_cpu() || target.device() != from[i].device()) {
      target.copy_(from[i], /*non_blocking=*/!target.device().is_cpu());
      continue;
    }
    auto& [targets, sources] = together[{target.scalar_type(), from[i].scalar_type()}];
    targets.push_back(target);
    sources.push_back(from[i].detach());
  }
  for (const auto& [types, lists] : together) copy_together(lists.first, lists.second);
}

Tensors copies_of(TensorSpan tensors) {
  const at::NoGradGuard no_grad;
  Tensors copies(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) copies[i] = at::empty_like(tensors[i].detach());
  }
  copy_all(copies, tensors);
  return copies;
}

}  // namespace penstock::model
