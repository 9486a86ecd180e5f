// What can be refused before a run begins.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/model/optimizer.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/low_rank.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/plan/sync_rounds.h"
#include "penstock/train/compensated_optimizer.h"
#include "penstock/train/coverage.h"
#include "penstock/train/rate_schedules.h"
#include "penstock/train/step_numbers.h"
#include "penstock/train/top_hits.h"
#include "penstock/train/trainer.h"
#include "penstock/train/written_score.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::train {

namespace {

constexpr int64_t kMaxThreads = 1024;

void check_range(const char* what, int64_t value, int64_t least, int64_t most = INT64_MAX) {
  if (value < least)
    throw ConfigError(fmt::format("{} must be at least {}, found {}", what, least, value));
  if (value > most)
    throw ConfigError(fmt::format("{} must be at most {}, found {}", what, most, value));
}

/// The data set must fit the model and its loss.
void check_data(const model::Model& model, const DataSplit& data, const model::LossSpec& loss) {
  const SampleSpec wanted = samples_for(model, loss);
  if (data.train->size() < 1) throw ConfigError("the training set is empty");
  const SampleSpec& found = data.train->sample();
  const auto same_input = [](const model::InputSpec& a, const model::InputSpec& b) {
    return a.shape == b.shape && a.type == b.type;
  };
  const bool inputs_fit = std::equal(found.inputs.begin(), found.inputs.end(),
                                     wanted.inputs.begin(), wanted.inputs.end(), same_input);
  const model::TargetSpec& a = found.targets;
  const model::TargetSpec& b = wanted.targets;
  const bool targets_fit = !b.needed || (a.needed && a.shape == b.shape && a.type == b.type);
  if (!inputs_fit || !targets_fit) {
    throw ConfigError(fmt::format("the data set '{}' has {}; the model '{}' and its loss take {}",
                                  data.train->name(), describe(found), model.name(),
                                  describe(wanted)));
  }
  if (b.needed && b.type == at::kLong && a.classes > b.classes) {
    throw ConfigError(fmt::format(
        "the model '{}' has logits for {} classes, the data set '{}' has {}: a classifier of at "
        "least as many is expected",
        model.name(), b.classes, data.train->name(), a.classes));
  }
}

/// Replicas step alone, and their steps are added: so one step of each has to be a part of a step
/// of all.
void check_asynchronous(const model::Model& model, const TrainOptions& options) {
  const auto refuse = [](const std::string& found) {
    throw ConfigError(fmt::format(
        "the synchronisation asynchronous adds the steps of replicas: expected the optimiser sgd "
        "without weight decay, clipping and shared weights, found {}",
        found));
  };
  if (!traits(options.optimizer.kind).steps_add_up)
    refuse(fmt::format("{}", to_string(options.optimizer.kind)));
  if (options.optimizer.nesterov) refuse("Nesterov momentum");
  if (options.optimizer.weight_decay > 0)
    refuse(fmt::format("a weight decay of {}", options.optimizer.weight_decay));
  if (scales_loss(options.plan.precision))
    refuse("the precision float16, which leaves out steps that all replicas have to leave out");
  if (options.max_grad_norm > 0)
    refuse(fmt::format("clipping to a norm of {}", options.max_grad_norm));
  if (!graph::tie_groups(model.graph()).empty())
    refuse(fmt::format("that layers of '{}' share weights", model.name()));
}

/// Each copy of the pipeline steps by itself: nothing of a step may need the others.
void check_rounds(const model::Model& model, const TrainOptions& options) {
  const std::vector<int> replicas = options.plan.replicas();
  if (replicas == std::vector<int>(replicas.size(), 1)) return;
  const auto refuse = [](const std::string& found, const char* expected) {
    throw ConfigError(fmt::format(
        "under the synchronisation diloco replicas step by themselves: expected {}, found {}",
        expected, found));
  };
  if (options.max_grad_norm > 0) {
    refuse(fmt::format("a clip norm of {}", options.max_grad_norm),
           "gradients that are not clipped (no clip norm), whose norm is over all workers");
  }
  if (scales_loss(options.plan.precision))
    refuse("float16", "float32, tf32 or bfloat16, which leave out no steps");
  if (options.mean.is_used())
    refuse("one", "no mean of the weights (ema, swa), of which each replica has others");
  const std::vector<StageId> stages = plan::stage_of_layer(options.plan, model.graph());
  for (const graph::TieGroup& group : graph::tie_groups(model.graph())) {
    const StageId first = stages[group.front().layer.index()];
    for (const graph::ParameterRef& use : group) {
      if (stages[use.layer.index()] == first) continue;
      refuse(fmt::format("stages {} and {} that do", first.value, stages[use.layer.index()].value),
             "stages that share no weights, whose gradients are added over all workers");
    }
  }
}

void check_top5(const model::Model& model, const model::LossSpec& loss) {
  if (has_top5(model, loss)) return;
  throw ConfigError(fmt::format(
      "the metric top5 needs the loss cross-entropy and more than five classes; the loss of '{}' "
      "is {}",
      model.name(),
      loss.name == "cross-entropy"
          ? fmt::format("over {} classes", model::targets_for(model, loss).classes)
          : loss.name));
}

/// Whether the metric can be had of the model's loss.
void check_metric(const model::Model& model, const DataSplit& data, const TrainOptions& options) {
  const bool is_judged = options.metric || options.target || options.eval_every > 0;
  if (is_judged && options.evaluate && data.test->size() == 0)
    throw ConfigError(
        "evaluations with a metric, a target or between steps need test samples, "
        "found none");
  const model::LossSpec loss = model::loss_for(model, options.loss);
  if (options.metric == Metric::Accuracy && !model::counts_correct(model, loss)) {
    throw ConfigError(fmt::format(
        "the metric accuracy needs a loss with right and wrong outputs; that of '{}' is {}",
        model.name(), loss.name));
  }
  if (options.metric == Metric::Perplexity && loss.name != "cross-entropy" &&
      loss.name != "model") {
    throw ConfigError(
        fmt::format("the metric perplexity needs the loss cross-entropy, found {}", loss.name));
  }
  if (options.metric == Metric::Top5) check_top5(model, loss);
  if (!options.metric || !traits(*options.metric).writes) return;
  if (data.translation == nullptr || loss.name != "cross-entropy") {
    throw ConfigError(fmt::format(
        "the metric {} needs sentences to write with their vocabulary, and a model that makes "
        "logits; the data set is '{}', the loss {}",
        to_string(*options.metric), data.train->name(), loss.name));
  }
  if (options.coverage_penalty != 0) {
    attending_layer(model);  // for what it refuses
    if (!options.plan.teams().empty())
      throw ConfigError(
          "a penalty for coverage looks at what a whole layer reads, and members of a team have "
          "parts: expected a plan without teams, or a coverage penalty of 0");
  }
  check_metric_files(*options.metric);
}

void check_mean(const WeightMean& mean) {
  if (!(mean.ema >= 0 && mean.ema < 1)) {
    throw ConfigError(fmt::format(
        "exponential mean of the weights: expected a share of its old value from 0 to below 1, "
        "found {}",
        mean.ema));
  }
  if ((mean.ema > 0) + mean.swa_start.has_value() + mean.swa_patience.has_value() > 1)
    throw ConfigError("means of the weights: expected one of them, found several");
  check_range("the first step of the mean of the weights", mean.swa_start.value_or(0), 0);
  constexpr int64_t kMostPatience = 1'000'000;
  check_range("the patience of the mean of the weights", mean.swa_patience.value_or(0), 0,
              kMostPatience);
}

void check_carries(const model::Model& model) {
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    if (!model.layer(LayerId{l}).carried().empty()) return;
  }
  throw ConfigError(fmt::format(
      "to carry states, layers are needed whose states can go on from window to window, "
      "such as those of awd_lm: '{}' has none",
      model.name()));
}

void check_carried(const model::Model& model, const DataSplit& data, const TrainOptions& options) {
  if (!options.carry_state) return;
  check_carries(model);
  if (options.lengths != Lengths::Whole) {
    throw ConfigError(
        "states are carried between windows of one length: expected the lengths whole");
  }
  if (options.evaluate && data.test->size() > 0 && data.test->size() < options.mini_batch_size) {
    throw ConfigError(fmt::format(
        "the test set has {} windows, and is read in as many parts as a mini-batch has samples, "
        "{}: expected a smaller mini-batch, more test data, or no evaluation",
        data.test->size(), options.mini_batch_size));
  }
}

/// Whether what waits for evaluations gets some.
void check_fed(const DataSplit& data, const TrainOptions& options) {
  const bool waits =
      options.learning_rate.schedule.starts_with(kPlateauName) || options.mean.swa_patience;
  if (waits && options.evaluate && data.test->size() == 0) {
    throw ConfigError(
        "a learning rate or a mean of the weights that follows evaluations needs test samples, "
        "found none");
  }
}

}  // namespace

void validate(const TrainOptions& options) {
  check_range("the mini-batch size", options.mini_batch_size, 1);
  check_range("the number of epochs", options.epochs, 0);
  check_range("the number of steps", options.max_steps, 0);
  check_range("the number of warm-up steps", options.warmup_steps, 0);
  check_range("the number of threads per worker", options.threads_per_worker, 1, kMaxThreads);
  check_range("the number of threads for data", options.data_threads, 0, kMaxThreads);
  check_range("the length of the learning rate's schedule", options.learning_rate_steps, 0);
  if (!(options.max_grad_norm >= 0)) {
    throw ConfigError(
        fmt::format("the gradient's largest norm must be at least 0 (0: not clipped), found {}",
                    options.max_grad_norm));
  }
  constexpr int64_t kMostGroups = 1'000'000;
  constexpr int64_t kMostStaleness = 1'000'000'000;
  check_range("the number of steps between evaluations (0: a whole epoch)", options.eval_every, 0);
  constexpr int64_t kMostBeam = 1000;
  check_range("the width of the beam", options.beam, 1, kMostBeam);
  if (!std::isfinite(options.length_penalty))
    throw ConfigError(
        fmt::format("the length penalty must be finite, found {}", options.length_penalty));
  if (!(options.coverage_penalty >= 0 && std::isfinite(options.coverage_penalty)))
    throw ConfigError(fmt::format("the coverage penalty must be at least 0 and finite, found {}",
                                  options.coverage_penalty));
  check_range("the number of gradient groups (0: as few as the replicas allow)",
              options.gradient_groups, 0, kMostGroups);
  check_range("the staleness", options.staleness, 0, kMostStaleness);
  if (!(options.outer.learning_rate >= 0 && std::isfinite(options.outer.learning_rate)) ||
      !(options.outer.momentum >= 0 && options.outer.momentum < 1)) {
    throw ConfigError(
        fmt::format("the outer optimiser expects a learning rate of at least 0 and a momentum from "
                    "0 to below 1, found {} and {}",
                    options.outer.learning_rate, options.outer.momentum));
  }
  validate(options.learning_rate);
  const plan::Compensation compensation = options.plan.compensation;
  model::make_optimizer(compensated_optimizer(options.optimizer, compensation));
  if (needs_momentum(options.learning_rate) && momentum_parameter(options.optimizer) == nullptr) {
    throw ConfigError(fmt::format(
        "the learning-rate schedule {} changes the momentum, and {} has none that can be changed: "
        "expected cycle_momentum=no, or another optimiser",
        options.learning_rate.schedule, to_string(options.optimizer.kind)));
  }
  if (needs_momentum(options.learning_rate) && traits(compensation).fixes_momentum) {
    throw ConfigError(fmt::format(
        "the learning-rate schedule {} changes the momentum, which compensation {} relies on: "
        "expected cycle_momentum=no, or another compensation",
        options.learning_rate.schedule, to_string(compensation)));
  }
  check_mean(options.mean);
  const bool moves_weights = traits(compensation).ahead != nullptr;
  if (moves_weights && optimizer_of(options).averages) {
    throw ConfigError(fmt::format(
        "compensation {} moves weights by the optimiser's state, which has a mean of the weights, "
        "too: expected no such mean, or compensation rate or nesterov",
        to_string(compensation)));
  }
}

int64_t mini_batches_per_epoch(int64_t samples, const TrainOptions& options) {
  return options.drop_last || options.carry_state ? samples / options.mini_batch_size
                                                  : ceil_div(samples, options.mini_batch_size);
}

bool wants_norm(const TrainOptions& options) {
  return options.max_grad_norm > 0 || scales_loss(options.plan.precision);
}

void check_before_plan(const model::Model& model, const DataSplit& data,
                       const TrainOptions& options) {
  check_metric(model, data, options);
  check_fed(data, options);
  check_carried(model, data, options);
}

void check_trainable(const model::Model& model, const DataSplit& data,
                     const TrainOptions& options) {
  validate(options);
  check_data(model, data, options.loss);
  check_before_plan(model, data, options);
  if (mini_batches_per_epoch(data.train->size(), options) == 0) {
    throw ConfigError(fmt::format(
        "an epoch has no step: the {} training samples do not fill one of {} samples, and what "
        "does not is left out",
        data.train->size(), options.mini_batch_size));
  }
  check_range("the number of workers of the plan", options.plan.num_workers(), 1, kMaxThreads);
  check_range("micro_batches of the plan", options.plan.micro_batches, 1);
  if (options.gradient_groups > 0 && options.plan.weights != schedule::WeightPolicy::Flush) {
    throw ConfigError(
        fmt::format("gradients are summed in a given number of groups under the policy flush only, "
                    "not under {}",
                    to_string(options.plan.weights)));
  }
  const plan::GradientSync sync = options.plan.sync;
  plan::check_sync_precision(sync, options.plan.gradient_precision);
  if (sync == plan::GradientSync::Asynchronous) check_asynchronous(model, options);
  plan::check_rounds(options.plan);
  plan::check_low_rank(options.plan);
  if (sync == plan::GradientSync::PowerSgd && scales_loss(options.plan.precision)) {
    throw ConfigError(
        "under the synchronisation powersgd what a step leaves out goes into the next one: "
        "expected "
        "float32, tf32 or bfloat16, which leave out no steps, found float16");
  }
  if (sync == plan::GradientSync::DiLoCo) check_rounds(model, options);
}

}  // namespace penstock::train
