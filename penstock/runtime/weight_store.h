// The versions of one stage's weights on one worker, with copy on write (docs/weights.md). A stash
// is a list of references: a new version costs memory only while a micro-batch in flight still
// needs the old one, and the memory of dead versions is reused.
//
// Versions may have 16 bits: then the float32 weights behind them (masters) exist once, steps
// change them in place, and a new version is their rounded copy.
//
//   WeightStore store(weights, optimizer);
//   // version 0 stays as long as a micro-batch needs it
//   store.step(gradients, {.learning_rate = 0.1, .step = 1});
//   store.release(WeightVersion{0});                            // now it is gone
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/model/optimizer.h"
#include "penstock/runtime/fabric/weight_shares.h"
#include "penstock/util/ids.h"

namespace penstock::runtime {

using model::Tensors;
using model::TensorSpan;

/// Not thread-safe: one worker owns it.
class WeightStore {
 public:
  /// Takes the weights over. `single`: of each weight, instead of the one for all, with the same
  /// state_names(); empty: none. The optimisers must outlive the store. `share`: the part of each
  /// weight that steps change here; somebody else makes the rest of a new version (places()).
  /// Empty: all of it. `types`: of each weight, the type of its versions; empty: float32, as the
  /// weights themselves. Either has a share or versions of another type.
  WeightStore(Tensors weights, const model::Optimizer& optimizer,
              std::vector<const model::Optimizer*> single = {}, WeightShare share = {},
              const std::vector<at::ScalarType>& types = {});

  /// Leaf tensors that require gradients. Throws InternalError when the version was released or
  /// does not exist yet.
  const Tensors& at(WeightVersion version) const;
  WeightVersion latest() const { return latest_; }
  /// The newest weights, released or not, in float32.
  Tensors newest() const;

  /// No forward or backward will use the version again. If it is the latest version, the next step
  /// may overwrite it.
  void release(WeightVersion version);

  /// Makes version latest() + 1 out of latest(): in place if latest() was released, otherwise in
  /// other memory. An undefined gradient leaves its weight unchanged.
  void step(TensorSpan gradients, const model::StepContext& context);
  /// The same in parts: the version exists at once; each of its weights has to be stepped, once,
  /// before it is used and before the next step begins.
  /// `freed`: versions that are released before the next step begins, and which nobody reads any
  /// more but a backward pass that is on its way: it has gone through a weight when that is
  /// stepped. So steps use their memory already.
  void begin_step(const model::StepContext& context, const std::vector<WeightVersion>& freed = {});
  /// Steps the weights from number `first` on; on a GPU all of them in a few operations. With a
  /// share, that part of them: the rest of their memory in the new version is then undefined, and a
  /// weight without a gradient is copied.
  void step_weights(size_t first, TensorSpan gradients);
  /// What step_weights() does on a GPU, on any device.
  void step_together(size_t first, TensorSpan gradients);
  /// The memory of `count` weights of the latest version from number `first` on, each contiguous.
  Tensors places(size_t first, size_t count) const;

  /// The part of a tensor of the shape of weight `index` that is stepped here.
  at::Tensor own_part(size_t index, const at::Tensor& tensor) const;

  /// The latest version ahead by so many of the optimisers' next steps (model/next_step.h), as
  /// leaf tensors of the versions' types. `context`: of the next step, whose number is behind that
  /// of the last one by one. The whole state must be here.
  Tensors moved_ahead(const model::StepContext& next, int64_t steps) const;
  /// The latest version plus `steps` times the mean of steps, the last state, written into
  /// `target`, which has the versions' shapes and types.
  void write_corrected(Tensors& target, int64_t steps) const;

  /// What a step would add to the weights from number `first` on, undefined where there is no
  /// gradient; steps the optimiser's state, and leaves the weights as they are.
  Tensors updates(size_t first, TensorSpan gradients, const model::StepContext& context);
  /// Instead of step_weights(): adds such updates.
  void add_weights(size_t first, TensorSpan updates);
  /// Adds them to the latest version, which nobody else may use.
  void add_in_place(size_t first, TensorSpan updates);

  /// The latest version's weights from number `first` on become these, float32, wherever older
  /// versions that are still needed share their memory. Whole weights, which are all stepped.
  void replace(size_t first, TensorSpan weights);
  /// The newest weights and `others`, float32 of the same shapes, change places. Whole weights.
  void exchange(Tensors& others);
  /// The same with their means (OptimizerSpec::averages).
  void exchange_average();

  /// Drops all versions except the latest, which becomes version 0.
  void begin_run();
  /// The stage's replicas have their weights in one memory, and each steps its share of it. Then
  /// begin_step() throws ConfigError where the newest version was not released. `is_first`: of the
  /// replicas, the one that claims the memory.
  void set_shared_memory(bool is_first) {
    has_shared_memory_ = true;
    claims_weights_ = is_first;
  }
  /// The steps since then; nothing: the last one has not changed all weights, or other replicas
  /// make parts of it in memory of their own.
  std::optional<int64_t> steps_made() const;

  /// Versions alive, and bytes held for versions (with memory kept for reuse), for the float32
  /// weights behind them and for optimiser state.
  int64_t num_versions() const { return static_cast<int64_t>(versions_.size()); }
  int64_t bytes() const;
  /// Weights, versions and state belong to this thread's worker, in the account of memory.
  void claim_memory() const;

  /// One list per entry of the optimiser's state_names(), each with one tensor per weight: of the
  /// shape that the optimiser gives it, or with a share flat, of that part alone.
  const std::vector<Tensors>& state() const { return state_; }
  /// Replaces weights and state by copies of these (a checkpoint); the version becomes 0. The state
  /// is that of whole weights, whatever the share. Throws ConfigError for states of other shapes.
  void load(TensorSpan weights, const std::vector<Tensors>& state);

 private:
  struct Held {
    WeightVersion version;
    Tensors weights;
    bool released = false;
    bool leaves = false;  ///< it is about to be released: steps take its weights one by one
  };
  /// Memory for a new version of weight `index`: that of a dead version, if nobody uses it any
  /// more.
  at::Tensor take_buffer(size_t index);
  void recycle(Tensors& weights);
  void recycle(size_t index, at::Tensor& weight);
  /// Calls write(memory) with the place of weight `index` in the version of the step that has
  /// begun: its own memory, or other.
  template <class Write>
  void rewrite(size_t index, Write&& write);
  /// Newest weight `index` in float32, without a graph.
  at::Tensor master(size_t index) const;
  /// Whether the latest version of weight `index` is the same tensor as in the version before.
  bool shared_with_older(size_t index) const;

  /// The step that has begun.
  struct Step {
    model::StepContext context;
    std::vector<bool> in_place;  ///< per weight
  };

  std::vector<const model::Optimizer*> optimizers_;  ///< per weight
  WeightShare share_;                                ///< empty: all
  bool has_shared_memory_ = false;
  bool claims_weights_ = true;
  Step step_;
  size_t unstepped_ = 0;       ///< weights that the step has yet to change
  std::deque<Held> versions_;  ///< ascending; the last is the latest
  WeightVersion latest_{0};
  std::vector<WeightVersion> gone_;  ///< dropped by begin_step(), and still to be released
  Tensors masters_;                  ///< per weight; undefined where its versions are float32
  std::vector<Tensors> state_;
  std::vector<Tensors> spare_;  ///< per weight: memory of dead versions
};

}  // namespace penstock::runtime
