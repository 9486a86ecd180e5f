// The steps of one of several replicas that train by themselves for rounds of steps, and exchange
// what they have changed at the end of each (round_state.h). Between two ends nothing is sent.
//
//   step           1     2    ...   H                  H+1
//   replica 0     STEP  STEP       STEP, changes ->    F, whose layers take the outer step
//   replica 1     STEP  STEP       STEP, changes ->    F
//
// Bytes that a replica sends per round, with M bytes of weights and n replicas: 2(n-1)/n M, as
// `ordered` does per step. Internal to runtime.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "penstock/runtime/sums/bucket_path.h"
#include "penstock/runtime/sums/stage_sums.h"

namespace penstock::runtime {

/// SYNC does nothing. The STEP that ends a round gives the changes bucket by bucket; where the
/// fabric adds in the background, the next forward pass takes each bucket's sum when it comes to
/// its first layer, and otherwise STEP does.
class LocalSums : public SoleSums {
 public:
  LocalSums(const StageContext& context, Grouping grouping, std::unique_ptr<BucketPath> path);

  void add(const schedule::Action& action, const Backward& backward) override;
  void step(const schedule::Action& action) override;
  BeforeLayer before_layer(const schedule::Action& action) override;
  void complete() override { take_below(path_->ends().back() + 1); }
  std::vector<schedule::SumEvent> events() const override { return path_->events(); }

 private:
  bool ends_round(const schedule::Action& step) const;
  void give_changes(const schedule::Action& step);
  /// Takes the sums that are due for the weights below `end`.
  void take_below(size_t end);

  std::unique_ptr<BucketPath> path_;
  bool is_late_;        ///< sums are taken after STEP
  size_t next_bucket_;  ///< of the sums that are due; behind the last: none is
};

}  // namespace penstock::runtime
