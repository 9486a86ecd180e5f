#include "penstock/train/coded_cuts.h"

#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "penstock/runtime/coding/coded_tensor.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {
namespace {

using plan::BoundaryCoding;

at::Tensor there_and_back(const at::Tensor& tensor, const BoundaryCoding& coding,
                          std::optional<uint32_t> seed) {
  const runtime::TensorLayout layout{.sizes = tensor.sizes().vec(), .type = tensor.scalar_type()};
  return runtime::decode(runtime::encode(tensor, coding, seed), layout, coding);
}

struct Crossing : torch::autograd::Function<Crossing> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& value,
                            int64_t kind, int64_t rank, int64_t seed) {
    context->saved_data["kind"] = kind;
    context->saved_data["rank"] = rank;
    context->saved_data["seed"] = seed;
    return there_and_back(value, {static_cast<plan::Coding>(kind), rank}, {}).clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const BoundaryCoding coding{static_cast<plan::Coding>(context->saved_data["kind"].toInt()),
                                context->saved_data["rank"].toInt()};
    if (!gradients.front().defined()) return {at::Tensor(), {}, {}, {}};
    const auto seed = static_cast<uint32_t>(context->saved_data["seed"].toInt());
    return {there_and_back(gradients.front(), coding, seed), {}, {}, {}};
  }
};

}  // namespace

CodedCuts::CodedCuts(const plan::Plan& plan) {
  for (const plan::Link& link : plan.links) {
    if (!link.coding.is_exact()) codings_[{link.from, link.to}] = link.coding;
  }
}

at::Tensor CodedCuts::coded(const at::Tensor& value, StageId maker, StageId reader,
                            uint64_t seed) const {
  const auto found = codings_.find({maker, reader});
  if (found == codings_.end()) return value;
  // As of the first gradient of a message (runtime/boundary_codings.cpp): most have one.
  const auto own = static_cast<uint32_t>(derive_seed(seed, maker.value, reader.value, 0));
  return Crossing::apply(value, static_cast<int64_t>(found->second.kind), found->second.rank,
                         static_cast<int64_t>(own));
}

}  // namespace penstock::train
