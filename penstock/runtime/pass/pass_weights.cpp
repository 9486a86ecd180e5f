#include "penstock/runtime/pass/pass_weights.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "penstock/runtime/sums/stage_sums.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;

namespace {

/// Reads the stage's passes in the worker's list.
template <class Visit>
void for_each_pass(const StageContext& context, Visit visit) {
  for (const Action& action : context.run.schedule().workers[context.replica.worker.index()]) {
    if (action.stage == context.stage() && is_compute(action.op)) visit(action);
  }
}

/// Versions ahead by the optimisers' next steps. A prediction is made when a pass first needs it,
/// or right before the step that replaces its version, whose state it needs; it goes with its last
/// use. Autograd keeps what backward passes go through.
class PredictedWeights final : public MovedWeights {
 public:
  PredictedWeights(const StageContext& context, StageSums& sums) : context_(context), sums_(sums) {
    for_each_pass(context, [&](const Action& action) {
      if (action.op == Op::Forward || action.op == Op::Recompute) {
        if (action.ahead != 0) ++predictions_[key_of(action)].uses;
      }
    });
  }

  const model::Tensors& forward(const Action& action) override {
    if (action.ahead == 0) return context_.replica.weights.at(action.version);
    const auto found = predictions_.find(key_of(action));
    PENSTOCK_CHECK(found != predictions_.end(), action.version, action.ahead);
    make(found->first, found->second);
    current_ = found->second.weights;
    if (--found->second.uses == 0) predictions_.erase(found);
    return current_;
  }

  void before_step(WeightVersion version) override {
    current_.clear();
    for (auto entry = predictions_.lower_bound({version.value, 0});
         entry != predictions_.end() && entry->first.first == version.value; ++entry)
      make(entry->first, entry->second);
  }

 private:
  using Key = std::pair<int64_t, int64_t>;  ///< version, steps ahead
  struct Prediction {
    int64_t uses = 0;
    model::Tensors weights;  ///< empty: not made yet
  };

  static Key key_of(const Action& action) { return {action.version.value, action.ahead}; }

  void make(const Key& key, Prediction& prediction) {
    if (!prediction.weights.empty()) return;
    const WeightStore& store = context_.replica.weights;
    sums_.complete();
    PENSTOCK_CHECK(store.latest().value == key.first, key.first, store.latest());
    prediction.weights = store.moved_ahead(context_.step_context(key.first), key.second);
  }

  const StageContext& context_;
  StageSums& sums_;
  std::map<Key, Prediction> predictions_;
  model::Tensors current_;
};

/// One copy of the weights, which all micro-batches in flight go through: it has the newest weights
/// in forward passes, and those less the mean steps since the forward pass in backward passes.
class CorrectedWeights final : public MovedWeights {
 public:
  CorrectedWeights(const StageContext& context, StageSums& sums) : context_(context), sums_(sums) {}

  const model::Tensors& forward(const Action& action) override {
    const WeightStore& store = context_.replica.weights;
    sums_.complete();
    if (copy_.empty()) {
      for (const at::Tensor& weight : store.at(action.version))
        copy_.push_back(at::empty_like(weight.detach()).requires_grad_(true));
    }
    store.write_corrected(copy_, 0);
    return copy_;
  }

  void before_backward(const Action& action) override {
    sums_.complete();
    context_.replica.weights.write_corrected(copy_, action.ahead);
  }

 private:
  const StageContext& context_;
  StageSums& sums_;
  model::Tensors copy_;
};

bool moves_weights(const StageContext& context) {
  bool moves = false;
  for_each_pass(context, [&](const Action& action) { moves = moves || action.ahead != 0; });
  return moves;
}

}  // namespace

std::unique_ptr<MovedWeights> make_moved_weights(const StageContext& context, StageSums& sums) {
  if (!context.run.training || context.run.request.endless != nullptr || !moves_weights(context))
    return nullptr;
  if (traits(context.shape().compensation).keeps_mean_step)
    return std::make_unique<CorrectedWeights>(context, sums);
  return std::make_unique<PredictedWeights>(context, sums);
}

}  // namespace penstock::runtime
