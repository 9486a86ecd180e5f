// The gradients of one replica of a stage, from the backward passes of a mini-batch to its step.
// The way is chosen once per run: the only replica adds its own (SoleSums), several add theirs
// within SYNC or while they compute (replica_sums.h). Internal to runtime.
//
//   std::unique_ptr<StageSums> sums = make_stage_sums(context);
//   sums->add(action, backward);                    // B or W
//   sums->sync(action);                             // SYNC: the sums over all replicas
//   model::Tensors& gradients = sums->ready(mini_batch);   // NORM changes them
//   sums->step(action);                             // STEP
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/stage_context.h"
#include "penstock/runtime/stage_tape.h"
#include "penstock/schedule/action.h"
#include "penstock/schedule/timeline.h"

namespace penstock::runtime {

/// A step that may begin before STEP.
struct StepAhead {
  model::StepContext context;
  std::vector<WeightVersion> freed;  ///< as WeightStore::begin_step() takes them
};

/// Not thread-safe: its worker owns it.
class StageSums {
 public:
  explicit StageSums(const StageContext& context) : context_(context) {}
  virtual ~StageSums() = default;
  StageSums(const StageSums&) = delete;
  StageSums& operator=(const StageSums&) = delete;

  /// Makes the gradients of the stage's weights, and says meanwhile which are made.
  using Backward = std::function<Tensors(const StageTape::Made& made)>;

  /// B or W: runs the backward pass and adds what it makes.
  virtual void add(const schedule::Action& action, const Backward& backward) = 0;
  /// Before add(), where STEP follows its pass and nothing else of the stage is in between but SYNC
  /// and the release of these versions: weights may be stepped while the pass goes on.
  virtual void expect_step(const schedule::Action& /*step*/, std::vector<WeightVersion> /*freed*/) {
  }
  virtual void sync(const schedule::Action&) {}
  /// Between SYNC, or the last B or W, and STEP: the mini-batch's gradients of all weights, summed
  /// over micro-batches, replicas and tied weights of the stage.
  virtual Tensors& ready(MiniBatchId mini_batch) = 0;
  virtual void step(const schedule::Action& action) = 0;

  /// What F has to call before each layer, because parts of a step are due; empty: nothing.
  virtual BeforeLayer before_layer(const schedule::Action&) { return {}; }
  /// Takes what is due of the last step.
  virtual void complete() {}
  /// Under `asynchronous`, takes all that other replicas have given; after complete().
  virtual void catch_up() {}

  /// How backward passes are cut, so that gradients can be added or leave while they go on.
  virtual SegmentEnds segment_ends() const;
  /// The sums that travelled while the worker computed, as they came: each from the time that the
  /// replica gave its part; on steady_clock. At most as many as the run keeps events.
  virtual std::vector<schedule::SumEvent> events() const { return {}; }

 protected:
  /// Adds up the gradients of weights that the stage uses twice.
  void add_inner_ties();

  const StageContext& context_;
  std::optional<Tensors> ready_;
};

/// Of a stage with one replica, or of a replica that steps by itself (local_sums.h).
class SoleSums : public StageSums {
 public:
  SoleSums(const StageContext& context, Grouping grouping);

  void add(const schedule::Action& action, const Backward& backward) override;
  /// So the gradients of a layer are gone before those of the layer before it are made.
  void expect_step(const schedule::Action& step, std::vector<WeightVersion> freed) override;
  Tensors& ready(MiniBatchId mini_batch) override;
  void step(const schedule::Action& action) override;

 protected:
  /// Whether add() may step weights.
  bool steps_ahead() const { return ahead_.has_value(); }

 private:
  /// Steps those of these weights that have a gradient.
  void step_made(MicroBatchId micro_batch, const std::vector<size_t>& places);
  void step_rest(const Tensors& gradients);

  std::vector<bool> rounded_;       ///< by weight; empty: none
  std::optional<StepAhead> ahead_;  ///< the step that may begin, or has begun
  std::vector<bool> stepped_;       ///< by weight; empty: it has not begun
  GradientBuffer gradients_;
};

/// Of a replica for one run; keeps a reference. In make_sums.cpp.
std::unique_ptr<StageSums> make_stage_sums(const StageContext& context);

}  // namespace penstock::runtime
