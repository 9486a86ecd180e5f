// A layer that makes the model's own loss as a mean over targets, which are among the model's
// inputs. Who cuts a batch into micro-batches weighs their losses by these numbers: a micro-batch
// with few targets left after the ignored ones weighs less.
//
//   if (const TargetCount count = target_count(model)) weight = count(inputs);
#pragma once

#include <cstdint>
#include <functional>

#include "penstock/model/model.h"

namespace penstock::model {

/// How many targets count in these inputs of the model. Thread-safe.
using TargetCount = std::function<int64_t(const Tensors& inputs)>;

class CountsTargets {
 public:
  virtual ~CountsTargets() = default;
  /// Empty: the loss is none of its results, or no mean over targets.
  virtual TargetCount target_count() const = 0;
};

/// Of the model's own loss; empty: it has none, or one that is no mean over targets.
inline TargetCount target_count(const Model& model) {
  if (!model.returns_loss() || model.graph().outputs().empty()) return {};
  const auto* layer =
      dynamic_cast<const CountsTargets*>(&model.layer(model.graph().outputs().front().layer));
  return layer == nullptr ? TargetCount() : layer->target_count();
}

}  // namespace penstock::model
