#include "penstock/runtime/weight_store.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/model/device/tensor_memory.h"
#include "penstock/model/optimizers/next_step.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// Of a checkpoint: which weights have which state depends on the optimiser's settings.
void check_state_shape(const at::Tensor& found, const at::Tensor& expected) {
  if (found.sizes() == expected.sizes()) return;
  throw ConfigError(
      fmt::format("the optimiser's state of a weight has the shape [{}], expected [{}]: resume "
                  "with the optimiser and the groups that the checkpoint was made with",
                  fmt::join(found.sizes(), ", "), fmt::join(expected.sizes(), ", ")));
}

void are_of(MemoryKind kind, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) model::set_memory_kind(tensor, kind);
}

at::Tensor as_leaf(const at::Tensor& tensor) { return tensor.detach().requires_grad_(true); }

}  // namespace

WeightStore::WeightStore(Tensors weights, const model::Optimizer& optimizer,
                         std::vector<const model::Optimizer*> single, WeightShare share,
                         const std::vector<at::ScalarType>& types)
    : optimizers_(std::move(single)),
      share_(std::move(share)),
      masters_(weights.size()),
      spare_(weights.size()) {
  if (optimizers_.empty()) optimizers_.assign(weights.size(), &optimizer);
  PENSTOCK_CHECK(optimizers_.size() == weights.size(), optimizers_.size(), weights.size());
  PENSTOCK_CHECK(share_.empty() || share_.size() == weights.size(), share_.size(), weights.size());
  PENSTOCK_CHECK(types.empty() || types.size() == weights.size(), types.size(), weights.size());
  if (!share_.empty()) {
    for (at::Tensor& weight : weights) weight = weight.contiguous();
  }
  Held held;
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool is_short = !types.empty() && types[i] != weights[i].scalar_type();
    if (is_short) masters_[i] = weights[i].detach();
    held.weights.push_back(as_leaf(is_short ? weights[i].detach().to(types[i]) : weights[i]));
  }
  versions_.push_back(std::move(held));
  state_.resize(optimizer.state_names().size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const Tensors state = optimizers_[i]->new_state(own_part(i, weights[i].detach()));
    PENSTOCK_CHECK(state.size() == state_.size(), state.size(), state_.size());
    for (size_t s = 0; s < state.size(); ++s) state_[s].push_back(state[s]);
  }
}

at::Tensor WeightStore::own_part(size_t index, const at::Tensor& tensor) const {
  if (share_.empty()) return tensor;
  return tensor.reshape(-1).narrow(0, share_[index].begin, share_[index].length);
}

at::Tensor WeightStore::master(size_t index) const {
  return masters_[index].defined() ? masters_[index] : versions_.back().weights[index].detach();
}

Tensors WeightStore::newest() const {
  Tensors weights = versions_.back().weights;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (masters_[i].defined()) weights[i] = masters_[i];
  }
  return weights;
}

const Tensors& WeightStore::at(WeightVersion version) const {
  for (const Held& held : versions_) {
    if (held.version == version && !held.released) return held.weights;
  }
  PENSTOCK_CHECK(false, "weight version", version, "is not alive; latest", latest_);
}

void WeightStore::release(WeightVersion version) {
  if (std::erase(gone_, version) > 0) return;
  const auto found = std::find_if(versions_.begin(), versions_.end(),
                                  [&](const Held& held) { return held.version == version; });
  PENSTOCK_CHECK(found != versions_.end() && !found->released, "weight version", version,
                 "released twice or unknown; latest", latest_);
  found->released = true;
  if (version == latest_) return;  // the next step writes over it
  recycle(found->weights);
  versions_.erase(found);
}

void WeightStore::recycle(Tensors& weights) {
  for (size_t i = 0; i < weights.size(); ++i) recycle(i, weights[i]);
}

void WeightStore::recycle(size_t index, at::Tensor& weight) {
  // A weight that a step left unchanged is shared with the next version.
  if (weight.defined() && weight.use_count() == 1 && weight.storage().use_count() == 1)
    spare_[index].push_back(std::move(weight));
}

at::Tensor WeightStore::take_buffer(size_t index) {
  if (spare_[index].empty()) return at::empty_like(versions_.back().weights[index].detach());
  at::Tensor buffer = std::move(spare_[index].back());
  spare_[index].pop_back();
  return buffer;
}

bool WeightStore::shared_with_older(size_t index) const {
  return versions_.size() > 1 &&
         versions_[versions_.size() - 2].weights[index].is_same(versions_.back().weights[index]);
}

void WeightStore::step(TensorSpan gradients, const model::StepContext& context) {
  PENSTOCK_CHECK(gradients.size() == masters_.size(), gradients.size(), masters_.size());
  begin_step(context);
  step_weights(0, gradients);
}

void WeightStore::begin_step(const model::StepContext& context,
                             const std::vector<WeightVersion>& freed) {
  for (Held& held : versions_) {
    if (std::find(freed.begin(), freed.end(), held.version) == freed.end()) continue;
    if (held.version != latest_) {
      held.leaves = true;
    } else if (!held.released) {
      held.released = true;
      gone_.push_back(latest_);
    }
  }
  const Held& current = versions_.back();
  step_.context = context;
  step_.in_place.resize(current.weights.size());
  // A weight that an earlier step left unchanged is shared with an older version, which may still
  // be needed.
  for (size_t i = 0; i < current.weights.size(); ++i)
    step_.in_place[i] = current.released && !shared_with_older(i);
  if (has_shared_memory_ &&
      std::find(step_.in_place.begin(), step_.in_place.end(), false) != step_.in_place.end()) {
    throw ConfigError(
        "the schedule steps weights that it releases later: replicas that have them in one memory "
        "need FREE before STEP");
  }
  Held next{.version = WeightVersion{latest_.value + 1}, .weights = current.weights};
  latest_ = next.version;
  unstepped_ = current.weights.size();
  if (current.released) versions_.pop_back();
  versions_.push_back(std::move(next));
}

void WeightStore::step_weights(size_t first, TensorSpan gradients) {
  const at::NoGradGuard no_grad;
  Tensors& weights = versions_.back().weights;
  PENSTOCK_CHECK(first + gradients.size() <= weights.size(), first, gradients.size());
  if (!weights.empty() && !weights.front().device().is_cpu())
    return step_together(first, gradients);
  std::vector<at::Tensor> state(state_.size());
  for (size_t k = 0; k < gradients.size(); ++k) {
    const size_t i = first + k;
    for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s][i];
    if (!share_.empty()) {
      rewrite(i, [&](const at::Tensor& target) {
        if (share_[i].length == 0) return;
        const at::Tensor weight = own_part(i, weights[i].detach());
        at::Tensor own = own_part(i, target);
        if (gradients[k].defined())
          optimizers_[i]->step(weight, own_part(i, gradients[k]), own, state, step_.context);
        else if (!step_.in_place[i])
          own.copy_(weight);
      });
      continue;
    }
    if (!gradients[k].defined()) continue;
    if (at::Tensor& own = masters_[i]; own.defined()) {
      optimizers_[i]->step(own, gradients[k], own, state, step_.context);
      rewrite(i, [&](at::Tensor& target) { target.copy_(own); });
      continue;
    }
    rewrite(i, [&](at::Tensor& target) {
      optimizers_[i]->step(weights[i].detach(), gradients[k], target, state, step_.context);
    });
  }
  unstepped_ -= gradients.size();
}

void WeightStore::step_together(size_t first, TensorSpan gradients) {
  const at::NoGradGuard no_grad;
  // By optimiser and type; usually it is one of each.
  std::map<std::pair<const model::Optimizer*, at::ScalarType>, std::vector<model::WeightStep>>
      groups;
  for (size_t k = 0; k < gradients.size(); ++k) {
    const size_t i = first + k;
    const at::Tensor weight = own_part(i, master(i));
    if (!gradients[k].defined() && share_.empty()) continue;
    at::Tensor place;
    if (!share_.empty()) {
      // Others write to the rest of it, also where there is no gradient.
      rewrite(i, [&](const at::Tensor& target) { place = own_part(i, target); });
      if (share_[i].length == 0) continue;
      if (!gradients[k].defined()) {
        if (!step_.in_place[i]) place.copy_(weight);
        continue;
      }
    }
    model::WeightStep step{.weight = weight, .gradient = own_part(i, gradients[k])};
    for (const Tensors& tensors : state_) step.state.push_back(tensors[i]);
    const auto key = std::pair(optimizers_[i], weight.scalar_type());
    if (masters_[i].defined())
      step.new_weight = weight;
    else if (place.defined())
      step.new_weight = place;
    else
      rewrite(i, [&](at::Tensor& target) { step.new_weight = target; });
    groups[key].push_back(std::move(step));
  }
  for (auto& [key, steps] : groups) key.first->step_together(steps, step_.context);
  Tensors versions;
  Tensors masters;
  for (size_t k = 0; k < gradients.size(); ++k) {
    const at::Tensor& own = masters_[first + k];
    if (!gradients[k].defined() || !own.defined()) continue;
    masters.push_back(own);
    rewrite(first + k, [&](at::Tensor& target) { versions.push_back(target); });
  }
  model::copy_all(versions, masters);
  unstepped_ -= gradients.size();
}

Tensors WeightStore::places(size_t first, size_t count) const {
  const Tensors& weights = newest();
  PENSTOCK_CHECK(first + count <= weights.size(), first, count, weights.size());
  Tensors places;
  for (size_t i = first; i < first + count; ++i) places.push_back(weights[i].variable_data());
  return places;
}

template <class Write>
void WeightStore::rewrite(size_t index, Write&& write) {
  at::Tensor& weight = versions_.back().weights[index];
  const bool in_place = step_.in_place[index];
  // variable_data() has its own version counter: autograd does not notice that the leaf was written
  // in place. The verifier has proven that no graph that is still needed reads it (under "latest"
  // such a read is what the user asked for).
  for (Held& held : versions_) {
    if (held.leaves && !in_place) recycle(index, held.weights[index]);
  }
  at::Tensor target = (in_place ? weight : take_buffer(index)).variable_data();
  write(target);
  if (in_place) return;
  model::set_memory_kind(weight, MemoryKind::Versions);
  weight = as_leaf(target);
  model::set_memory_kind(weight, MemoryKind::Weights);
}

Tensors WeightStore::moved_ahead(const model::StepContext& next, int64_t steps) const {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(unstepped_ == 0 && share_.empty(), unstepped_, share_.size());
  model::StepContext made = next;
  --made.step;
  Tensors moved;
  std::vector<at::Tensor> state(state_.size());
  for (size_t i = 0; i < masters_.size(); ++i) {
    for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s][i];
    const at::Tensor ahead = model::moved_ahead(*optimizers_[i], master(i), state, made, steps);
    moved.push_back(as_leaf(ahead.to(versions_.back().weights[i].scalar_type())));
  }
  return moved;
}

void WeightStore::write_corrected(Tensors& target, int64_t steps) const {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(unstepped_ == 0 && share_.empty() && target.size() == masters_.size(), unstepped_,
                 target.size());
  for (size_t i = 0; i < target.size(); ++i) {
    // Autograd does not notice: as in rewrite().
    target[i].variable_data().copy_(
        steps == 0 ? master(i) : at::add(master(i), state_.back()[i], static_cast<double>(steps)));
  }
}

Tensors WeightStore::updates(size_t first, TensorSpan gradients,
                             const model::StepContext& context) {
  const at::NoGradGuard no_grad;
  Tensors result(gradients.size());
  std::vector<at::Tensor> state(state_.size());
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (!gradients[k].defined()) continue;
    const at::Tensor weight = master(first + k);
    for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s][first + k];
    result[k] = at::empty_like(weight);
    optimizers_[first + k]->step(weight, gradients[k], result[k], state, context);
    result[k].sub_(weight);
  }
  return result;
}

void WeightStore::add_weights(size_t first, TensorSpan updates) {
  const at::NoGradGuard no_grad;
  Tensors& weights = versions_.back().weights;
  for (size_t k = 0; k < updates.size(); ++k) {
    if (!updates[k].defined()) continue;
    const size_t i = first + k;
    if (at::Tensor& own = masters_[i]; own.defined()) {
      own.add_(updates[k]);
      rewrite(i, [&](at::Tensor& target) { target.copy_(own); });
      continue;
    }
    rewrite(i, [&](at::Tensor& target) { at::add_out(target, weights[i].detach(), updates[k]); });
  }
  unstepped_ -= updates.size();
}

void WeightStore::add_in_place(size_t first, TensorSpan updates) {
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < updates.size(); ++k) {
    if (!updates[k].defined()) continue;
    const size_t i = first + k;
    at::Tensor version = versions_.back().weights[i].variable_data();
    if (masters_[i].defined())
      version.copy_(masters_[i].add_(updates[k]));
    else
      version.add_(updates[k]);
  }
}

void WeightStore::replace(size_t first, TensorSpan weights) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(share_.empty() && unstepped_ == 0 && first + weights.size() <= masters_.size(),
                 unstepped_, first, weights.size());
  for (size_t k = 0; k < weights.size(); ++k) {
    const size_t i = first + k;
    at::Tensor& version = versions_.back().weights[i];
    if (masters_[i].defined()) masters_[i].copy_(weights[k]);
    if (shared_with_older(i)) {
      model::set_memory_kind(version, MemoryKind::Versions);
      version = as_leaf(take_buffer(i));
      model::set_memory_kind(version, MemoryKind::Weights);
    }
    version.variable_data().copy_(weights[k]);
  }
}

void WeightStore::exchange(Tensors& others) {
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(share_.empty() && others.size() == masters_.size(), others.size());
  for (size_t i = 0; i < masters_.size(); ++i) {
    const at::Tensor version = versions_.back().weights[i].variable_data();
    const at::Tensor weight = masters_[i].defined() ? masters_[i] : version;
    const at::Tensor before = weight.clone();
    weight.copy_(others[i]);
    if (masters_[i].defined()) version.copy_(weight);
    others[i].copy_(before);
  }
}

void WeightStore::exchange_average() {
  PENSTOCK_CHECK(!state_.empty(), state_.size());
  exchange(state_.back());
}

std::optional<int64_t> WeightStore::steps_made() const {
  const bool is_whole = latest_.value == 0 || share_.empty() || has_shared_memory_;
  return unstepped_ == 0 && is_whole ? std::optional(latest_.value) : std::nullopt;
}

void WeightStore::begin_run() {
  unstepped_ = 0;
  gone_.clear();
  while (versions_.size() > 1) {
    recycle(versions_.front().weights);
    versions_.pop_front();
  }
  latest_ = WeightVersion{0};
  versions_.front().version = latest_;
  versions_.front().released = false;
}

void WeightStore::claim_memory() const {
  if (claims_weights_) {
    for (const Tensors& tensors : spare_) are_of(MemoryKind::Versions, tensors);
    for (const Held& held : versions_) are_of(MemoryKind::Versions, held.weights);
    are_of(MemoryKind::Weights, versions_.back().weights);
    are_of(MemoryKind::Weights, masters_);
  }
  for (const Tensors& tensors : state_) are_of(MemoryKind::OptimizerState, tensors);
}

int64_t WeightStore::bytes() const {
  int64_t total = 0;
  const auto add = [&total](const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) total += static_cast<int64_t>(tensor.nbytes());
    }
  };
  for (const Held& held : versions_) add(held.weights);
  add(masters_);
  for (const Tensors& tensors : state_) add(tensors);
  for (const Tensors& tensors : spare_) add(tensors);
  return total;
}

void WeightStore::load(TensorSpan weights, const std::vector<Tensors>& state) {
  begin_run();
  const at::NoGradGuard no_grad;
  PENSTOCK_CHECK(weights.size() == versions_.front().weights.size(), weights.size());
  PENSTOCK_CHECK(state.size() == state_.size(), state.size(), state_.size());
  for (size_t s = 0; s < state.size(); ++s) {
    for (size_t i = 0; i < state[s].size(); ++i)
      check_state_shape(own_part(i, state[s][i]), state_[s][i]);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (masters_[i].defined()) masters_[i].copy_(weights[i]);
    versions_.front().weights[i].detach().copy_(weights[i]);
  }
  for (size_t s = 0; s < state.size(); ++s) {
    for (size_t i = 0; i < state[s].size(); ++i) state_[s][i].copy_(own_part(i, state[s][i]));
  }
}

}  // namespace penstock::runtime
