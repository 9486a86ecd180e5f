// Passes by graphs of the device (stage_graphs.h), and by a tape where there is no graph for a
// micro-batch: the first ones, those of another size, and all later ones when a graph cannot be
// recorded. Internal to runtime.
#pragma once

#include <memory>
#include <string>

#include "penstock/runtime/pass/tape_pass.h"

namespace penstock::runtime {

/// Why this run makes the stage's passes without graphs; empty: it need not.
std::string graph_obstacle(const StageContext& context);

class GraphPass : public Pass {
 public:
  /// The replica has graphs, without an obstacle.
  GraphPass(const StageContext& context, StageSums& sums, std::unique_ptr<TapePass> by_tape);

  model::LossResult forward(const schedule::Action& action, InFlight& record) override;
  void backward(const schedule::Action& action, InFlight& record) override;
  void receive(InFlight& record, StageId from, model::Tensors parts) override;
  model::Tensors message(InFlight& record, StageId to) override;

 private:
  /// The graph that B of the micro-batch goes through; null: a tape.
  StageGraph*& graph_of(InFlight& record) { return by_tape_->activations(record).graph; }
  /// One that F of the micro-batch can go through; null: there is none.
  StageGraph* take(const schedule::Action& action, const InFlight& record);
  /// False: the micro-batch has left its graph.
  bool run_backward(const schedule::Action& action, InFlight& record);
  /// The micro-batch goes on with a tape: its B cannot be recorded.
  void leave(const schedule::Action& action, InFlight& record);
  void give_back(StageGraph*& graph);

  const StageContext& context_;
  StageSums& sums_;
  StageGraphs& graphs_;
  std::unique_ptr<TapePass> by_tape_;
  bool shares_activations_;  ///< all micro-batches go through the newest one's
  bool keeps_gradients_;     ///< those that B makes stay as they are until the step
};

}  // namespace penstock::runtime
