#include "penstock/train/planned_model.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "penstock/model/team_loss.h"
#include "penstock/schedule/teams.h"
#include "penstock/shard/check_types.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

shard::ShardedModel proven(const model::Model& whole, const std::vector<StageId>& stages,
                           const plan::Plan& plan, const model::LossSpec& loss) {
  shard::ShardOptions options;
  options.keeps_output_parts = model::make_team_loss(model::loss_for(whole, loss)) != nullptr;
  for (const plan::Stage& stage : plan.stages) options.sequence.push_back(stage.sequence);
  shard::ShardedModel sharded =
      shard::shard(std::make_shared<model::Model>(whole), stages, plan.teams(), options);
  const std::vector<std::string> errors = shard::check_types(sharded);
  if (errors.empty()) return sharded;
  throw ConfigError(fmt::format(
      "model '{}' in teams is not proven equal to the whole one: {}{}: expected a plan without "
      "teams",
      whole.name(), errors.front(),
      errors.size() == 1 ? std::string() : fmt::format(" (and {} more)", errors.size() - 1)));
}

}  // namespace

PlannedModel::PlannedModel(const model::Model& whole, const plan::Plan& plan,
                           const model::LossSpec& loss)
    : whole_(whole),
      stages_(plan::stage_of_layer(plan, whole.graph())),
      shape_(schedule::with_teams(
          {.replicas = plan.replicas(), .worker_of_replica = plan.worker_of_replica},
          plan.teams())) {
  if (!shape_.teams.empty()) sharded_ = proven(whole, stages_, plan, loss);
}

const std::vector<StageId>& PlannedModel::stage_of_layer() const {
  return sharded_ ? sharded_->stage_of_layer : stages_;
}

std::vector<bool> PlannedModel::per_layer(const std::vector<bool>& of_whole) const {
  if (!sharded_ || of_whole.empty()) return of_whole;
  std::vector<bool> all;
  for (int32_t l = 0; l < model().graph().num_layers(); ++l) {
    const std::optional<LayerId> layer = model().part(LayerId{l})->whole;
    all.push_back(layer && of_whole.at(layer->index()));
  }
  return all;
}

std::optional<model::Division> PlannedModel::output_parts() const {
  return sharded_ ? sharded_->output_parts : std::nullopt;
}

std::vector<shard::Shares> PlannedModel::shares() const {
  return sharded_ ? sharded_->shares : std::vector<shard::Shares>();
}

}  // namespace penstock::train
