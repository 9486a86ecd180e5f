// The gradients of one mini-batch on one replica of a stage, summed over its micro-batches in an order that does not depend on the schedule
// nor, for equal `groups`, on the number of replicas.
//
// Micro-batch b belongs to group b mod G; replica k of r holds the groups k, k + r, ... (r divides G), because micro-batch b runs on
// replica b mod r. Each group is summed over its micro-batches in ascending order, then the groups' sums are added in ascending order, here
// or in SharedReduce. A backward that comes before its turn waits with its gradients; generators run them in turn, so that costs nothing
// there. Memory: one set of gradients for each group that the replica holds and that has a micro-batch.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

/// Sum over the micro-batches of one group.
struct GroupGradients {
  int64_t group = 0;
  model::Tensors sums;  ///< undefined where nothing was added
};
/// Ascending by group.
using Partials = std::vector<GroupGradients>;

/// Not thread-safe: one worker owns it.
class GradientBuffer {
 public:
  /// `count` tensors; `accumulate` micro-batches per mini-batch.
  GradientBuffer(size_t count, int64_t groups, int64_t accumulate) : count_(count), groups_(groups), accumulate_(accumulate) {}

  /// Adds the gradients of one micro-batch, each once; undefined ones add nothing. Keeps references, copies nothing for the first
  /// micro-batch of a group.
  void add(MicroBatchId micro_batch, model::Tensors gradients);
  /// The sums of the mini-batch that the first micro-batches added belong to, to be read only; that mini-batch is forgotten.
  Partials take(MiniBatchId mini_batch);
  /// The same, contiguous and not shared with anybody, so that the caller may write to them.
  Partials take_exclusive(MiniBatchId mini_batch);

 private:
  struct Group {
    int64_t next = 0;  ///< the micro-batch whose turn it is
    model::Tensors sums;
    std::map<int64_t, model::Tensors> early;
  };
  using MiniBatch = std::map<int64_t, Group>;  ///< by group

  size_t count_;
  int64_t groups_;
  int64_t accumulate_;
  std::map<MiniBatchId, MiniBatch> mini_batches_;
};

/// The groups' sums added up in ascending order; `count` undefined tensors if there is none. Writes over the first of them where it may.
model::Tensors sum_of(Partials partials, size_t count);

}  // namespace penstock::runtime
