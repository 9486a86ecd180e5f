// The gradients of one of several replicas of a stage, where the fabric adds them while the workers
// compute. Internal to runtime.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "penstock/runtime/sums/replica_sums.h"

namespace penstock::runtime {

/// Buckets leave one by one during the last backward pass of a mini-batch. SYNC and STEP only note
/// that sums are due: the next forward pass takes each bucket's sum and steps its weights when it
/// comes to its first layer. With a norm, and with weights that the stage uses twice, SYNC takes
/// all sums: those need all gradients at once.
class BackgroundSums : public ReplicaSums {
 public:
  BackgroundSums(const StageContext& context, const Grouping& grouping,
                 std::unique_ptr<BucketPath> path, std::unique_ptr<StepRule> rule);

  void add(const schedule::Action& action, const Backward& backward) override;
  void sync(const schedule::Action& action) override;
  SegmentEnds segment_ends() const override;

 private:
  /// How many backward passes of the mini-batch the replica makes.
  int64_t num_passes(MiniBatchId mini_batch) const;
  /// The last one.
  void add_and_start(const schedule::Action& action, const Backward& backward);

  bool is_late_;                           ///< sums are taken after STEP
  std::vector<size_t> bucket_of_;          ///< by weight
  std::map<MiniBatchId, int64_t> passes_;  ///< that the replica has made
};

}  // namespace penstock::runtime
