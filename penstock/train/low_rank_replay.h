// PowerSGD of all replicas in one thread, for the serial replay: written out from the paper
// (Vogels, Karimireddy and Jaggi, 2019, algorithms 1 and 2), without the runtime's states, buckets
// and messages. It shares the runtime's arithmetic of columns, so that numbers that depend on
// rounding are the same. Internal to train.
//
//   LowRankReplay replay(options);
//   at::Tensor sum = replay.sum(use, shape, {gradient of replica 0, of replica 1}, step);
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "penstock/graph/model_graph.h"
#include "penstock/model/layer.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

/// Not thread-safe.
class LowRankReplay {
 public:
  explicit LowRankReplay(const TrainOptions& options)
      : rank_(options.plan.sync_rank),
        seed_(options.seed),
        precision_(options.plan.gradient_precision) {}

  /// The sum that replicas make of their gradients of a weight, which may be undefined.
  at::Tensor sum(const graph::ParameterRef& weight, const model::Shape& shape,
                 const model::Tensors& gradients, int64_t step);
  /// The same of a weight that several stages have: whole.
  at::Tensor whole_sum(const model::Tensors& gradients) const;

 private:
  struct State {
    at::Tensor q;
    model::Tensors errors;  ///< by replica
  };

  int64_t rank_;
  uint64_t seed_;
  FloatType precision_;
  std::map<std::pair<LayerId, int>, State> states_;
};

}  // namespace penstock::train
