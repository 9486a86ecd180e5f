// The gradients of one mini-batch on one replica of a stage, summed over its micro-batches in an
// order that does not depend on the schedule or, for equal `groups`, on the number of replicas.
//
// Micro-batch b belongs to group b mod G; replica k of r holds the groups k, k + r, ... (r divides
// G), because micro-batch b runs on replica b mod r. Each group is summed over its micro-batches in
// ascending order, then the groups' sums are added in ascending order, here or in SharedReduce.
// Gradients that come too early wait for their turn; generators run backwards in this order, so
// nothing waits there. Memory: one set of gradients for each group that the replica holds and that
// has a micro-batch. But a complete group is added to the groups before it as soon as those are
// complete, too, if the replica holds them all. So a stage with one replica keeps one set where no
// group has two micro-batches in a mini-batch, if they come in the order of their groups.
//
// Where gradients travel in 16 bits, those of a group are the unit that is rounded, so that sums do
// not depend on how many replicas, two or more, hold the groups.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/partials.h"
#include "penstock/util/ids.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::runtime {

/// Which micro-batches there are, and how they are grouped.
struct Grouping {
  int64_t groups = 1;
  int64_t accumulate = 1;             ///< micro-batches per mini-batch
  int64_t micro_batches = INT64_MAX;  ///< in total; the last mini-batch may be shorter
  int replica = 0;
  int replicas = 1;  ///< divides groups
  /// In which gradients travel between replicas. With 16 bits the groups of several replicas stay
  /// apart, because each of them is rounded.
  FloatType gradient_precision = FloatType::Float32;
  /// For one replica: by weight, whether its groups are rounded as if there were several; empty:
  /// none.
  std::vector<bool> rounded = {};
};

/// Not thread-safe: one worker owns it.
class GradientBuffer {
 public:
  /// `count` tensors.
  GradientBuffer(size_t count, const Grouping& grouping) : count_(count), grouping_(grouping) {}

  /// Adds the gradients of one micro-batch, each once; undefined ones add nothing. Keeps
  /// references, copies nothing for the first micro-batch of a group.
  void add(MicroBatchId micro_batch, model::Tensors gradients);
  /// Before add(): if it is the micro-batch's turn, adds the gradients of these weights now, and
  /// takes them out of the list, in which the buffer's begin at `first`. So they need no memory
  /// while others are made.
  void add_made(MicroBatchId micro_batch, const std::vector<size_t>& weights,
                model::Tensors& gradients, size_t first = 0);
  /// Before the micro-batch's first add_made(): whether it is the last one of its mini-batch, and
  /// all others are in the sum to which add_made() adds. So what is made is the replica's whole sum
  /// at once.
  bool finishes(MicroBatchId micro_batch);
  /// Then, after add_made(): takes the sum of a weight out.
  at::Tensor take_made(MicroBatchId micro_batch, size_t weight);
  /// The sums of the mini-batch, read-only; the buffer then forgets the mini-batch. All its
  /// micro-batches on this replica must have been added. Groups that were already summed are
  /// returned as the lowest of them.
  Partials take(MiniBatchId mini_batch);
  /// The same, contiguous and not shared, so that the caller may write to them.
  Partials take_exclusive(MiniBatchId mini_batch);
  /// Sets of gradients that are held, including those that wait for their turn.
  int64_t num_sets() const;

 private:
  struct Group {
    int64_t next = 0;  ///< the micro-batch whose turn it is
    model::Tensors sums;
    std::map<int64_t, model::Tensors> early;
  };
  struct MiniBatch {
    int64_t first = 0;  ///< micro-batch
    int64_t end = 0;
    std::optional<GroupGradients> folded;  ///< the sum of the groups below `next_group`
    int64_t next_group = 0;
    std::map<int64_t, Group> groups;  ///< the other groups with gradients
  };

  MiniBatch& mini_batch_of(MicroBatchId micro_batch);
  /// The first micro-batch of the mini-batch that belongs to a group that has one.
  int64_t first_of(const MiniBatch& mini_batch, int64_t group) const;
  /// The lowest group >= `group` with a micro-batch in the mini-batch, on any replica; -1 if there
  /// is none. O(1).
  int64_t next_present(const MiniBatch& mini_batch, int64_t group) const;
  void fold(MiniBatch& mini_batch);
  bool folds() const;
  Group& group_of(MiniBatch& mini_batch, MicroBatchId micro_batch);
  /// Where gradients of the micro-batch can be added at once; null: it is not its turn.
  model::Tensors* sums_for(MicroBatchId micro_batch);
  void round(model::Tensors& sums) const;

  size_t count_;
  Grouping grouping_;
  std::map<MiniBatchId, MiniBatch> mini_batches_;
};

/// The sum of the groups' sums in ascending order; `count` undefined tensors if there is none.
/// Overwrites the first of them where nobody else uses it.
model::Tensors sum_of(Partials partials, size_t count);

/// The nearest numbers of a type of 16 bits, as float32; the tensor itself where it is undefined or
/// the type is float32. Overwrites it where nobody else uses it.
at::Tensor rounded(at::Tensor gradient, FloatType precision);

}  // namespace penstock::runtime
