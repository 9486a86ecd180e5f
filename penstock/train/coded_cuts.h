// The codings of a plan's boundaries within one graph of autograd: what the serial replay puts
// between layers of different stages. It shares the codings of single tensors with the pipeline,
// and neither messages nor workers.
//
//   const CodedCuts cuts(plan);
//   at::Tensor read = cuts.coded(value, StageId{0}, StageId{1}, seed);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

#include "penstock/plan/plan.h"

namespace penstock::train {

/// Immutable, so thread-safe.
class CodedCuts {
 public:
  explicit CodedCuts(const plan::Plan& plan);

  bool empty() const { return codings_.empty(); }
  /// The value as stage `reader` gets it of `maker`; its gradient is coded on the way back, with
  /// `seed`, the micro-batch's.
  at::Tensor coded(const at::Tensor& value, StageId maker, StageId reader, uint64_t seed) const;

 private:
  std::map<std::pair<StageId, StageId>, plan::BoundaryCoding> codings_;
};

}  // namespace penstock::train
