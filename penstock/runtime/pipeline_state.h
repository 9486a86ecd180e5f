// What a pipeline has learned: weights, buffers and the optimiser's state of its stages, out and in
// (checkpoints). Internal to runtime.
#pragma once

#include <map>
#include <vector>

#include "penstock/runtime/pipeline_options.h"
#include "penstock/runtime/stages.h"

namespace penstock::runtime {

/// The functions of Pipeline with the same names. Keeps a reference. Not thread-safe.
class PipelineState {
 public:
  /// `steps`: that were made.
  PipelineState(Stages& stages, int64_t steps)
      : stages_(stages),
        steps_(steps),
        sums_factors_(stages.state_names().size() > stages.optimizer.state_names().size() &&
                      !stages.has_rounds()) {}

  std::vector<LayerSnapshot> snapshot() const;                ///< collective
  std::vector<model::Tensors> carried(int64_t places) const;  ///< collective
  void load_carried(const std::vector<model::Tensors>& layers, const std::vector<int64_t>& samples);
  void average_buffers();  ///< collective
  void exchange_averages();
  void show_rounds();  ///< collective
  void hide_rounds();
  std::map<LayerId, LayerSnapshot> copy_of_stage(StageId stage) const;
  void load(const std::vector<LayerSnapshot>& layers);

 private:
  /// Those of the model's own layers, which may be parts. Collective.
  std::vector<LayerSnapshot> own_layers() const;
  /// The optimiser's state of the stage, as WeightStore::state() without a share, on the rank of
  /// its first replica; elsewhere empty. Collective.
  std::vector<model::Tensors> whole_state(size_t stage) const;
  /// The same where the replicas share it out.
  std::vector<model::Tensors> gathered_state(size_t stage) const;
  /// `state` of the optimiser and what PowerSGD keeps of all replicas, in the host's memory.
  std::vector<model::Tensors> low_rank_state(size_t stage, std::vector<model::Tensors> state) const;
  /// The same where they train by themselves (round_layout.h), in the host's memory.
  std::vector<model::Tensors> round_state(size_t stage) const;
  /// Where replicas train by themselves: the weights that their round would make if it ended now,
  /// on their device; empty where this rank has none. Collective.
  model::Tensors round_weights(size_t stage) const;
  /// Buffers of the stage, averaged over its replicas; empty where this rank has none. Collective.
  model::Tensors mean_buffers(size_t stage) const;
  void load(size_t stage, const std::vector<LayerSnapshot>& layers);
  /// What all replicas of a stage carry, by place; only on the rank of the first. Collective.
  std::map<int64_t, model::Tensors> carried_places(size_t stage) const;

  Stages& stages_;
  int64_t steps_;
  bool sums_factors_;  ///< a stage's replicas do, so states have those of PowerSGD
};

}  // namespace penstock::runtime
