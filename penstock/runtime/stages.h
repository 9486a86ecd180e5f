// The stages of a pipeline on one rank: what lasts from run to run. Internal to runtime.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/model/optimizer.h"
#include "penstock/model/precision.h"
#include "penstock/model/sized_models.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/runtime/pipeline_options.h"
#include "penstock/runtime/replica.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/runtime/stage_teams.h"
#include "penstock/runtime/tied_weights.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::runtime {

/// Every rank has the modules of all stages (they hold no weights) and the replicas of its own
/// workers.
struct Stages {
  /// As Pipeline::Pipeline().
  Stages(const model::Model& model, std::vector<StageId> stage_of_layer, std::vector<int> counts,
         const model::Optimizer& optimizer, const PipelineOptions& options);

  size_t size() const { return counts.size(); }
  WorkerId worker_of(size_t stage, int replica) const {
    return table.worker_of_replica(StageId{static_cast<int32_t>(stage)}, replica);
  }
  /// Whether the replicas of the stage share out the optimiser's state.
  bool shares_state(size_t stage) const;
  /// Whether they have one copy of the weights in memory.
  bool shares_weights(size_t stage) const;
  /// Whether replicas train by themselves for rounds of steps (GradientSync::DiLoCo).
  bool has_rounds() const { return outer != nullptr; }
  /// Whether the stage's replicas sum factors of their gradients (GradientSync::PowerSgd).
  bool sums_factors(size_t stage) const {
    return options.sync == plan::GradientSync::PowerSgd && counts[stage] > 1;
  }
  /// Of the outer optimiser.
  model::StepContext outer_step() const { return {.learning_rate = options.outer.learning_rate}; }
  /// Of each weight's state in a LayerSnapshot: the optimiser's; with rounds also those of
  /// RoundState, of all replicas (round_layout.h); under PowerSGD then the factor and the error of
  /// each replica, without numbers where a stage has fewer.
  std::vector<std::string> state_names() const;
  /// Whether they are on several ranks.
  bool is_spread(size_t stage) const;
  /// Whether a worker of this rank has a GPU.
  bool has_gpu() const;
  /// Whether this rank has a replica of the stage that makes the layer's values.
  bool holds(LayerId layer) const {
    return !replicas[stage_of_layer[layer.index()].index()].empty();
  }
  /// Those of the whole model, where the model has parts of it.
  size_t num_whole_layers() const {
    return model.whole() == nullptr ? stage_of_layer.size()
                                    : model.whole()->graph().layers().size();
  }
  /// Whether the stage's replicas add their gradients in the memory of GPUs (device/device_sum.h);
  /// the same on every rank.
  bool sums_on_gpus(size_t stage) const;

  const model::Model& model;
  const model::SizedModels sized{model};  ///< for micro-batches of other lengths
  const model::Optimizer& optimizer;
  const PipelineOptions options;
  const std::vector<StageId> stage_of_layer;
  const std::vector<int> counts;  ///< by stage: of replicas, on all ranks
  const schedule::WorkerTable table;
  const std::vector<schedule::TeamPlace> teams;  ///< by stage
  const int64_t gradient_groups;
  const std::unique_ptr<model::Optimizer> outer;  ///< of rounds; null: there are none
  std::unique_ptr<World> own_world;               ///< where none was given
  World* world;
  std::vector<std::unique_ptr<WorkerDevice>> devices;  ///< by worker; null for those of other ranks
  std::vector<model::LayerPrecision> precisions;  ///< by layer; those of other ranks: as on CPUs
  std::vector<std::unique_ptr<StageModule>> modules;
  TiedWeights ties;
  std::vector<std::vector<std::unique_ptr<Replica>>> replicas;  ///< by stage: those of this rank
  std::vector<std::vector<Replica*>> held_by;                   ///< by worker, ascending by stage

 private:
  void check_teams() const;
  /// Throws ConfigError for parts that optimisers cannot step.
  void check_parts() const;
  void make_devices();
  void choose_precisions();
  /// Where the tensors of this rank's replicas of a stage are; the CPU where it has none.
  at::Device memory_of(StageId stage) const;
  void make_modules();
  /// Of a stage whose replicas sum factors.
  std::unique_ptr<LowRankState> make_low_rank(size_t stage) const;
  std::unique_ptr<Replica> make_replica(size_t stage, int number, WorkerId worker) const;
};

/// The stage's weights under PowerSGD; by its flat list.
std::vector<LowRankWeight> low_rank_weights(const Stages& stages, size_t stage);

/// The shapes of the stage's weights, and where its layers end in their list.
StageWeights weights_of(const StageModule& module);

}  // namespace penstock::runtime
