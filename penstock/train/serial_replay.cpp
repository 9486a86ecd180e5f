#include "penstock/train/serial_replay.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "penstock/model/loss.h"
#include "penstock/model/optimizers/next_step.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/model/precision.h"
#include "penstock/plan/compensation.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/runtime/carried_states.h"
#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/runtime/gradient_buffer.h"
#include "penstock/runtime/loss_scale.h"
#include "penstock/runtime/stage_module.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/train/coded_cuts.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/low_rank_replay.h"
#include "penstock/train/step_numbers.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {
namespace {

/// Which versions a stage reads for a micro-batch, and by how many steps they are moved.
struct Versions {
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t forward_ahead = 0;
  int64_t backward_ahead = 0;

  bool are_equal() const { return forward == backward && forward_ahead == backward_ahead; }
};

/// [stage][micro-batch], from the lowered schedule.
std::vector<std::vector<Versions>> versions_of(const schedule::Schedule& schedule) {
  std::vector<std::vector<Versions>> table(
      schedule.shape.replicas.size(),
      std::vector<Versions>(static_cast<size_t>(schedule.shape.micro_batches)));
  for (const auto& actions : schedule.workers) {
    for (const schedule::Action& action : actions) {
      if (!is_compute(action.op)) continue;
      Versions& entry = table[action.stage.index()][static_cast<size_t>(action.micro_batch.value)];
      if (action.op == schedule::Op::Forward) {
        entry.forward = action.version.value;
        entry.forward_ahead = action.ahead;
      }
      if (makes_weight_gradients(action.op)) {
        entry.backward = action.version.value;
        entry.backward_ahead = action.ahead;
      }
    }
  }
  return table;
}

/// The gradients of one mini-batch, by use.
class GradientSums {
 public:
  explicit GradientSums(size_t uses) : parts_(uses) {}

  /// Of one micro-batch, in the order of the micro-batches. Each group is summed apart.
  void add(size_t use, int64_t group, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    at::Tensor& sum = parts_[use][group];
    sum = sum.defined() ? sum + gradient : gradient;
  }
  /// The sum of the use's groups, rounded as replicas do it if the precision is short.
  at::Tensor take(size_t use, FloatType precision) {
    at::Tensor sum;
    for (auto& [group, part] : parts_[use]) {
      const at::Tensor next = runtime::rounded(std::move(part), precision);
      sum = sum.defined() ? sum + next : next;
    }
    parts_[use].clear();
    return runtime::rounded(std::move(sum), precision);
  }
  /// The sums of the use's groups, so many of them; undefined where nothing was added.
  model::Tensors take_groups(size_t use, int64_t groups) {
    model::Tensors sums(static_cast<size_t>(groups));
    for (auto& [group, part] : parts_[use]) sums[static_cast<size_t>(group)] = std::move(part);
    parts_[use].clear();
    return sums;
  }

 private:
  std::vector<std::map<int64_t, at::Tensor>> parts_;
};

/// One weight of the model and all its uses.
struct Weight {
  graph::ParameterRef owner;
  model::Tensors state;  ///< of the optimiser
};

/// One of several copies of the pipeline that train by themselves; usually there is one.
struct Copy {
  int number = 0;
  int of = 1;

  bool takes(int64_t micro_batch) const { return micro_batch % of == number; }
};

class SerialReplay {
 public:
  SerialReplay(const model::Model& model, const DataSplit& data, const TrainOptions& options,
               const Copy& copy)
      : model_(model),
        data_(data),
        options_(options),
        copy_(copy),
        loss_(model::make_loss(model::loss_for(model, options.loss))),
        precision_(options.plan.gradient_precision),
        stage_of_layer_(plan::stage_of_layer(options.plan, model.graph())),
        whole_(model, std::vector<StageId>(stage_of_layer_.size(), StageId{0}), StageId{0},
               model::layer_precisions(model, options.plan.precision)),
        boundaries_(options.plan),
        optimizers_(model, compensated_optimizer(optimizer_of(options), options.plan.compensation)),
        carried_(whole_.carried_offsets().back()) {
    for (const StageId stage : stage_of_layer_) last_stage_ = std::max(last_stage_, stage);
    loss_stage_ = stage_of_layer_.at(model.graph().outputs().front().layer.index());
    model::Tensors weights;
    for (const LayerId id : whole_.layers()) {
      const model::Tensors initial = model.initial_weights(id, options.seed);
      for (size_t i = 0; i < initial.size(); ++i)
        add_use({id, static_cast<int>(i)}, initial[i], weights);
      for (const at::Tensor& buffer : model.initial_buffers(id)) buffers_.push_back(buffer);
    }
    versions_.push_back(std::move(weights));
  }

  int64_t total_steps() const;
  int64_t steps() const { return steps_; }
  void begin_epoch(int64_t epoch, int64_t total_steps);
  int64_t steps_of_epoch() const { return epoch_->cut.num_mini_batches(); }
  /// Mini-batch `t` of the epoch.
  void run_step(int64_t t);
  /// Of weights_, after the last step.
  const model::Tensors& newest() const { return versions_.back(); }
  void replace_newest(model::Tensors weights) { versions_.back() = std::move(weights); }
  Replay take_result();

 private:
  void add_use(const graph::ParameterRef& use, const at::Tensor& initial, model::Tensors& weights);
  /// Adds the gradients of one micro-batch to `sums`; returns the sum of its samples' losses.
  double run_micro_batch(MicroBatchId b, const model::MiniBatchSize& mini_batch,
                         const std::vector<Versions>& versions, GradientSums& sums) const;
  /// What the losses of a mini-batch's micro-batches [begin, end) are a mean over.
  model::MiniBatchSize size_of(MiniBatchId mini_batch, int64_t begin, int64_t end) const;
  /// How many replicas round or factor the gradients of a use: each adds those of its own
  /// micro-batches. 1: none does.
  int64_t apart(size_t use) const {
    const StageId stage = stage_of_layer_[uses_[use].layer.index()];
    const bool are_apart = (is_short(precision_) && copy_.of == 1) || has_factors();
    return are_apart ? options_.plan.stages[stage.index()].replicas : 1;
  }
  bool has_factors() const { return options_.plan.sync == plan::GradientSync::PowerSgd; }
  /// The model's outputs; what crosses a boundary is coded, both ways.
  model::Tensors forward(const model::Tensors& leaves, const model::Tensors& inputs,
                         const model::ForwardContext& context) const;
  /// By weight.
  model::Tensors sums_of_weights(GradientSums sums);
  /// By use, what the replicas of its stage make of their gradients under PowerSGD.
  model::Tensors sums_of_factors(GradientSums sums);
  const at::Tensor& weight(size_t use, int64_t version) const;
  /// The same, moved by so many steps.
  at::Tensor moved(size_t use, int64_t version, int64_t ahead) const;
  StageId stage_of(size_t use) const { return stage_of_layer_[uses_[use].layer.index()]; }
  /// Of a weight's step; `ahead`: of the step after it.
  model::StepContext step_context(size_t weight, int64_t ahead) const;
  void keep_moments();
  void step(model::Tensors sums);

  const model::Model& model_;
  const DataSplit& data_;
  const TrainOptions& options_;
  Copy copy_;
  model::Loss loss_;
  FloatType precision_;
  std::vector<StageId> stage_of_layer_;
  StageId last_stage_{0};
  StageId loss_stage_{0};
  runtime::StageModule whole_;
  CodedCuts boundaries_;
  model::ParameterOptimizers optimizers_;
  std::vector<double> delays_;  ///< by stage; of this epoch
  std::vector<Weight> weights_;
  std::vector<graph::ParameterRef> uses_;  ///< in the order of the flat list that whole_ takes
  std::vector<size_t> weight_of_use_;      ///< into weights_
  mutable model::Tensors buffers_;
  mutable runtime::CarriedStates carried_;
  /// Of weights_; the first is version first_version_ of this epoch.
  std::deque<model::Tensors> versions_;
  /// Where weights are moved, what that needs of each version's optimiser.
  struct Moment {
    std::vector<model::Tensors> state;  ///< by weight
    std::vector<model::StepContext> next;
  };
  std::deque<Moment> moments_;
  struct Epoch {
    BatchCut cut;
    std::vector<int64_t> order;
    EpochBatches batches;
    std::vector<std::vector<Versions>> table;
    int64_t longest_delay = 0;

    Epoch(const Dataset& data, const BatchCut& the_cut, std::vector<int64_t> the_order,
          uint64_t seed, Lengths lengths)
        : cut(the_cut), order(std::move(the_order)), batches(data, order, 0, cut, seed, lengths) {}
  };
  std::unique_ptr<Epoch> epoch_;
  int64_t total_steps_ = 0;
  int64_t schedule_steps_ = 0;
  int64_t first_version_ = 0;
  int64_t steps_ = 0;
  runtime::LossScale loss_scale_{runtime::LossScaleState{}};  ///< of this epoch
  LowRankReplay factors_{options_};
  Replay result_;
};

void SerialReplay::add_use(const graph::ParameterRef& use, const at::Tensor& initial,
                           model::Tensors& weights) {
  const graph::ParameterRef owner = model_.graph().owner(use);
  uses_.push_back(use);
  const auto known = std::find_if(weights_.begin(), weights_.end(),
                                  [&](const Weight& weight) { return weight.owner == owner; });
  weight_of_use_.push_back(static_cast<size_t>(known - weights_.begin()));
  if (known != weights_.end()) return;
  weights_.push_back({owner, optimizers_.of(owner).new_state(initial)});
  weights.push_back(initial);
}

const at::Tensor& SerialReplay::weight(size_t use, int64_t version) const {
  const int64_t place = version - first_version_;
  PENSTOCK_CHECK(place >= 0 && place < static_cast<int64_t>(versions_.size()), version,
                 first_version_, versions_.size());
  return versions_[static_cast<size_t>(place)][weight_of_use_[use]];
}

at::Tensor SerialReplay::moved(size_t use, int64_t version, int64_t ahead) const {
  const at::Tensor& value = weight(use, version);
  if (ahead == 0) return value;
  const Moment& moment = moments_[static_cast<size_t>(version - first_version_)];
  const size_t w = weight_of_use_[use];
  if (traits(options_.plan.compensation).keeps_mean_step)
    return at::add(value, moment.state[w].back(), static_cast<double>(ahead));
  model::StepContext made = moment.next[w];
  --made.step;
  return moved_ahead(optimizers_.of(weights_[w].owner), value, moment.state[w], made, ahead);
}

model::StepContext SerialReplay::step_context(size_t weight, int64_t ahead) const {
  const int64_t step = steps_ - 1 + ahead;
  double rate = learning_rate(options_.learning_rate, step, schedule_steps_);
  const double delay = delays_[stage_of_layer_[weights_[weight].owner.layer.index()].index()];
  if (traits(options_.plan.compensation).divides_rate)
    rate /= plan::rate_divisor(delay, step, fade_steps(schedule_steps_));
  return {.learning_rate = rate,
          .step = step + 1 - loss_scale_.state().skipped,
          .mean_decay = plan::mean_step_decay(delay),
          .momentum = step_momentum(options_, step, schedule_steps_),
          .average_share = average_share(options_.mean, {}, step)};
}

void SerialReplay::keep_moments() {
  Moment& moment = moments_.emplace_back();
  if (traits(options_.plan.compensation).ahead == nullptr) return;
  for (size_t w = 0; w < weights_.size(); ++w) {
    model::Tensors& state = moment.state.emplace_back();
    for (const at::Tensor& tensor : weights_[w].state) state.push_back(tensor.detach().clone());
    moment.next.push_back(step_context(w, 1));
  }
}

double SerialReplay::run_micro_batch(MicroBatchId b, const model::MiniBatchSize& mini_batch,
                                     const std::vector<Versions>& versions,
                                     GradientSums& sums) const {
  const EpochBatches& batches = epoch_->batches;
  model::Tensors leaves;
  for (size_t use = 0; use < uses_.size(); ++use) {
    const Versions& read = versions[stage_of_layer_[uses_[use].layer.index()].index()];
    const at::Tensor value = moved(use, read.forward, read.forward_ahead);
    // Buffers that backward overwrites must be copies.
    const at::ScalarType type = whole_.weight_types()[use];
    leaves.push_back((read.are_equal() ? value.detach().to(type)
                                       : value.to(type, /*non_blocking=*/false, /*copy=*/true))
                         .requires_grad_(true));
  }
  model::Tensors inputs = batches.inputs(b);
  for (at::Tensor& input : inputs) input = model::as_activation(input, options_.plan.precision);
  const int64_t place = b.value % std::min(options_.plan.micro_batches, options_.mini_batch_size);
  model::Tensors carried = options_.carry_state ? carried_.before(place) : model::Tensors{};
  const model::Tensors outputs =
      forward(leaves, inputs, {.training = true, .seed = batches.seed(b), .carried = carried});
  if (options_.carry_state) carried_.keep(place, std::move(carried));
  const at::Tensor output = model::as_float32(outputs.at(whole_.model_outputs().front()));
  const model::LossResult loss = loss_(output, batches.targets(b), mini_batch);
  const double scale = scales_loss(options_.plan.precision)
                           ? loss_scale_.at(versions[loss_stage_.index()].forward)
                           : 1;
  for (size_t use = 0; use < uses_.size(); ++use) {
    const Versions& read = versions[stage_of_layer_[uses_[use].layer.index()].index()];
    if (!read.are_equal())
      leaves[use].variable_data().copy_(moved(use, read.backward, read.backward_ahead));
  }
  if (leaves.empty() || !loss.scaled_loss.requires_grad()) return loss.loss_sum;
  const auto gradients = torch::autograd::grad(
      {loss.scaled_loss}, leaves, {at::full_like(loss.scaled_loss.detach(), scale)},
      /*retain_graph=*/{}, /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t use = 0; use < uses_.size(); ++use) {
    at::Tensor gradient = gradients[use];
    if (gradient.defined()) gradient = model::as_float32(gradient);
    if (gradient.defined() && scale != 1) gradient = gradient * (1 / scale);
    sums.add(use, b.value % apart(use), gradient);
  }
  return loss.loss_sum;
}

model::Tensors SerialReplay::forward(const model::Tensors& leaves, const model::Tensors& inputs,
                                     const model::ForwardContext& context) const {
  if (boundaries_.empty()) return whole_.forward(leaves, buffers_, inputs, context);
  model::Tensors values = inputs;
  values.resize(whole_.num_slots());
  std::map<std::pair<size_t, StageId>, at::Tensor> coded;
  const auto read = [&](size_t slot, StageId reader) -> at::Tensor {
    if (slot < inputs.size()) return values[slot];
    const StageId maker = stage_of_layer_[whole_.layers()[whole_.maker_of(slot)].index()];
    if (maker == reader) return values[slot];
    at::Tensor& value = coded[{slot, reader}];
    if (!value.defined()) value = boundaries_.coded(values[slot], maker, reader, context.seed);
    return value;
  };
  for (size_t i = 0; i < whole_.layers().size(); ++i) {
    const runtime::LayerPlace& place = whole_.places()[i];
    const StageId stage = stage_of_layer_[whole_.layers()[i].index()];
    model::Tensors arguments;
    for (const size_t k : place.arguments) arguments.push_back(read(place.sources[k], stage));
    model::Tensors results = whole_.forward_layer(i, leaves, buffers_, arguments, context);
    std::move(results.begin(), results.end(),
              values.begin() + static_cast<std::ptrdiff_t>(place.first_output));
  }
  return whole_.outputs_of(values);
}

model::Tensors SerialReplay::sums_of_factors(GradientSums sums) {
  model::Tensors result(uses_.size());
  const auto first_use = [&](size_t use) {
    return static_cast<size_t>(
        std::find(weight_of_use_.begin(), weight_of_use_.end(), weight_of_use_[use]) -
        weight_of_use_.begin());
  };
  // Uses that are all of one stage are one weight to it.
  std::vector<bool> is_one(uses_.size(), true);
  for (size_t use = 0; use < uses_.size(); ++use) {
    if (stage_of(use) != stage_of(first_use(use))) is_one[first_use(use)] = false;
  }
  std::map<size_t, model::Tensors> gradients;  // by use
  for (size_t use = 0; use < uses_.size(); ++use) {
    model::Tensors own = sums.take_groups(use, apart(use));
    model::Tensors& all = gradients[is_one[first_use(use)] ? first_use(use) : use];
    all.resize(own.size());
    for (size_t k = 0; k < own.size(); ++k) {
      if (own[k].defined()) all[k] = all[k].defined() ? all[k] + own[k] : own[k];
    }
  }
  for (const auto& [use, parts] : gradients) {
    const model::Shape shape = versions_.back()[weight_of_use_[use]].sizes().vec();
    if (parts.size() == 1)
      result[use] = parts.front();
    else if (is_one[first_use(use)])
      result[use] = factors_.sum(uses_[use], shape, parts, steps_);
    else
      result[use] = factors_.whole_sum(parts);
  }
  return result;
}

model::Tensors SerialReplay::sums_of_weights(GradientSums sums) {
  const at::NoGradGuard no_grad;
  model::Tensors result(weights_.size());
  model::Tensors factored;
  if (has_factors()) factored = sums_of_factors(std::move(sums));
  for (size_t use = 0; use < uses_.size(); ++use) {
    const at::Tensor part = has_factors()
                                ? factored[use]
                                : sums.take(use, apart(use) > 1 ? precision_ : FloatType::Float32);
    at::Tensor& sum = result[weight_of_use_[use]];
    if (part.defined()) sum = sum.defined() ? sum + part : part;
  }
  return result;
}

void SerialReplay::step(model::Tensors sums) {
  const at::NoGradGuard no_grad;
  bool is_made = true;
  if (wants_norm(options_)) {
    double squares = 0;
    for (const at::Tensor& gradient : sums) {
      if (gradient.defined()) squares += gradient.to(at::kDouble).square().sum().item<double>();
    }
    const double norm = std::sqrt(squares);
    result_.grad_norms.push_back(norm);
    if (scales_loss(options_.plan.precision)) is_made = loss_scale_.take(norm);
    if (const double factor = runtime::clip_factor(norm, options_.max_grad_norm); factor != 1) {
      for (at::Tensor& gradient : sums) {
        if (gradient.defined()) gradient = gradient * factor;
      }
    }
  }
  ++steps_;
  model::Tensors next;
  for (size_t w = 0; w < weights_.size(); ++w) {
    const at::Tensor& before = versions_.back()[w];
    if (!sums[w].defined() || !is_made) {
      next.push_back(before);
      continue;
    }
    next.push_back(at::empty_like(before));
    optimizers_.of(weights_[w].owner)
        .step(before, sums[w], next.back(), weights_[w].state, step_context(w, 0));
  }
  versions_.push_back(std::move(next));
  keep_moments();
}

model::MiniBatchSize SerialReplay::size_of(MiniBatchId mini_batch, int64_t begin,
                                           int64_t end) const {
  if (copy_.of == 1) return epoch_->batches.size_of(mini_batch);
  model::MiniBatchSize share{.samples = 0};
  for (int64_t b = begin; b < end; ++b) {
    if (!copy_.takes(b)) continue;
    share.samples += epoch_->batches.samples(MicroBatchId{b});
    share.targets += epoch_->batches.micro_batch_targets(MicroBatchId{b});
  }
  return share;
}

void SerialReplay::begin_epoch(int64_t epoch, int64_t total_steps) {
  total_steps_ = total_steps;
  const int64_t left =
      std::min(total_steps - steps_, mini_batches_per_epoch(data_.train->size(), options_));
  const int64_t samples =
      std::min(data_.train->size(), saturating_mul(left, options_.mini_batch_size));
  const BatchCut cut(samples, options_.mini_batch_size, options_.plan.micro_batches);
  epoch_ = std::make_unique<Epoch>(
      *data_.train, cut,
      training_order(*data_.train, order_of_epoch(options_, options_.seed, epoch)),
      derive_seed(options_.seed, epoch), options_.lengths);
  const schedule::Schedule schedule =
      training_schedule(options_.plan, schedule::chain_links(last_stage_.value + 1), samples,
                        options_.mini_batch_size, wants_norm(options_));
  epoch_->table = versions_of(schedule);
  delays_ = schedule::mean_delays(schedule.shape);
  schedule_steps_ = options_.learning_rate_steps > 0 ? options_.learning_rate_steps : total_steps;
  for (const auto& stage : epoch_->table) {
    for (size_t b = 0; b < stage.size(); ++b) {
      epoch_->longest_delay =
          std::max(epoch_->longest_delay, static_cast<int64_t>(b) / cut.micro_batches -
                                              std::min(stage[b].forward, stage[b].backward));
    }
  }
  // Versions begin at 0 in each schedule, that is in each epoch.
  versions_.erase(versions_.begin(), versions_.end() - 1);
  first_version_ = 0;
  loss_scale_ = runtime::LossScale(loss_scale_.state());
  carried_.clear();
  moments_.clear();
  keep_moments();
}

void SerialReplay::run_step(int64_t t) {
  if (options_.stop != nullptr && options_.stop->load()) {
    throw RuntimeError(
        fmt::format("interrupted after {} of {} steps of the reference: nothing compared", steps_,
                    total_steps_));
  }
  const BatchCut& cut = epoch_->cut;
  const int64_t begin = t * cut.micro_batches;
  const int64_t end = std::min(begin + cut.micro_batches, cut.num_micro_batches());
  const model::MiniBatchSize size = size_of(MiniBatchId{t}, begin, end);
  GradientSums sums(uses_.size());
  double loss = 0;
  for (int64_t b = begin; b < end; ++b) {
    if (!copy_.takes(b)) continue;
    std::vector<Versions> read;
    for (const auto& stage : epoch_->table) read.push_back(stage[static_cast<size_t>(b)]);
    loss += run_micro_batch(MicroBatchId{b}, size, read, sums);
  }
  result_.losses.push_back(loss / static_cast<double>(cut.mini_batch_samples(MiniBatchId{t})));
  step(sums_of_weights(std::move(sums)));
  while (t + 1 - first_version_ > epoch_->longest_delay) {
    versions_.pop_front();
    moments_.pop_front();
    ++first_version_;
  }
}

int64_t SerialReplay::total_steps() const {
  const int64_t per_epoch = mini_batches_per_epoch(data_.train->size(), options_);
  const int64_t total = saturating_mul(options_.epochs, per_epoch);
  return options_.max_steps > 0 ? std::min(total, options_.max_steps) : total;
}

Replay SerialReplay::take_result() {
  result_.weights.resize(stage_of_layer_.size());
  for (size_t use = 0; use < uses_.size(); ++use) {
    result_.weights[uses_[use].layer.index()].push_back(versions_.back()[weight_of_use_[use]]);
  }
  return std::move(result_);
}

/// The outer optimiser of copies that train by themselves (DiLoCo), and the weights that all of
/// them have at the beginning of a round. Written out: the pipeline takes its own optimisers.
class OuterSgd {
 public:
  OuterSgd(const model::Tensors& weights, const TrainOptions& options)
      : step_(options.outer), precision_(options.plan.gradient_precision) {
    for (const at::Tensor& weight : weights) {
      start_.push_back(weight.clone());
      momentum_.push_back(at::zeros_like(weight));
    }
  }

  void end_round(std::deque<SerialReplay>& copies) {
    const at::NoGradGuard no_grad;
    for (size_t w = 0; w < start_.size(); ++w) {
      at::Tensor sum;
      for (const SerialReplay& copy : copies) {
        const at::Tensor change = runtime::rounded(start_[w] - copy.newest()[w], precision_);
        sum = sum.defined() ? sum + change : change;
      }
      const at::Tensor mean =
          runtime::rounded(sum, precision_) / static_cast<double>(copies.size());
      momentum_[w] = momentum_[w] * step_.momentum + mean;
      start_[w] = start_[w] - step_.learning_rate * (mean + step_.momentum * momentum_[w]);
    }
    for (SerialReplay& copy : copies) copy.replace_newest(start_);
  }

 private:
  plan::OuterStep step_;
  FloatType precision_;
  model::Tensors start_;
  model::Tensors momentum_;
};

/// Copy after copy makes each step; at the end of a round the outer optimiser steps.
Replay replay_copies(const model::Model& model, const DataSplit& data, const TrainOptions& options,
                     int count) {
  std::deque<SerialReplay> copies;
  for (int number = 0; number < count; ++number)
    copies.emplace_back(model, data, options, Copy{.number = number, .of = count});
  SerialReplay& first = copies.front();
  const int64_t total = first.total_steps();
  std::optional<OuterSgd> outer;
  if (count > 1) outer.emplace(first.newest(), options);
  for (int64_t epoch = 0; first.steps() < total; ++epoch) {
    for (SerialReplay& copy : copies) copy.begin_epoch(epoch, total);
    const int64_t steps = first.steps_of_epoch();
    for (int64_t t = 0; t < steps; ++t) {
      for (SerialReplay& copy : copies) copy.run_step(t);
      const bool ends = first.steps() % options.plan.sync_every == 0 || first.steps() == total;
      if (outer && ends) outer->end_round(copies);
    }
  }
  Replay replay = first.take_result();
  for (size_t k = 1; k < copies.size(); ++k) {
    const Replay other = copies[k].take_result();
    for (size_t t = 0; t < replay.losses.size(); ++t) replay.losses[t] += other.losses[t];
  }
  return replay;
}

}  // namespace

Replay replay_serially(const model::Model& model, const DataSplit& data,
                       const TrainOptions& options) {
  check_trainable(model, data, options);
  const bool has_rounds = options.plan.sync == plan::GradientSync::DiLoCo;
  return replay_copies(model, data, options, has_rounds ? options.plan.stages.front().replicas : 1);
}

}  // namespace penstock::train
