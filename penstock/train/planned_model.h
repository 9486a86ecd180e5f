// The model as the plan's workers compute it: the whole one or, where stages have teams, the one
// whose layers are spread over their members (shard/). Outside the pipeline weights are whole.
#pragma once

#include <optional>
#include <vector>

#include "penstock/model/loss_spec.h"
#include "penstock/model/model.h"
#include "penstock/plan/plan.h"
#include "penstock/schedule/schedule.h"
#include "penstock/shard/shard.h"

namespace penstock::train {

class PlannedModel {
 public:
  /// Keeps a reference to the model. Throws ConfigError for a plan that does not fit the model, and
  /// as shard::shard(), and where the types of a spread model do not prove it equal.
  /// `loss`: that of a training; of cross-entropy a spread vocabulary stays so.
  PlannedModel(const model::Model& whole, const plan::Plan& plan, const model::LossSpec& loss);

  const model::Model& model() const { return sharded_ ? sharded_->model : whole_; }
  const model::Model& whole() const { return whole_; }
  bool has_teams() const { return sharded_.has_value(); }
  /// Of model(); its stages are those of schedule::with_teams().
  const std::vector<StageId>& stage_of_layer() const;
  /// Per stage.
  const std::vector<int>& replicas() const { return shape_.replicas; }
  const std::vector<int>& worker_of_replica() const { return shape_.worker_of_replica; }
  int num_workers() const { return shape_.num_workers(); }
  /// One entry per stage of the plan, or none, as one per stage.
  template <class T>
  std::vector<T> per_stage(const std::vector<T>& of_plan) const {
    std::vector<T> all;
    for (size_t s = 0; s < of_plan.size(); ++s)
      all.insert(all.end(), shape_.teams.empty() ? 1 : static_cast<size_t>(shape_.teams[s]),
                 of_plan[s]);
    return all;
  }
  /// One entry per layer of the whole model, or none, as one per layer of model().
  std::vector<bool> per_layer(const std::vector<bool>& of_whole) const;
  /// ShardedModel::output_parts
  std::optional<model::Division> output_parts() const;
  /// What of each of the plan's stages is spread; empty: no stage has a team.
  std::vector<shard::Shares> shares() const;

 private:
  const model::Model& whole_;
  std::vector<StageId> stages_;  ///< of the whole model's layers
  schedule::ScheduleShape shape_;
  std::optional<shard::ShardedModel> sharded_;
};

}  // namespace penstock::train
