// The options that say what is learned, step by step.
#include "penstock/options/sections.h"

#include <fmt/format.h>

namespace penstock::options {
namespace {

using R = TrainRequest;

std::string without_steps_of_rate(const RunFacts& facts) {
  const std::string& schedule = facts.request.rates.schedule;
  return schedule == "step" ? "" : fmt::format("--lr-schedule is {}, expected step", schedule);
}

bool has_momentum(model::OptimizerKind kind) {
  return takes(kind, &model::OptimizerSpec::momentum);
}

std::string without_momentum(const RunFacts& facts) {
  const model::OptimizerKind kind = facts.request.optimizer.kind;
  if (has_momentum(kind)) return "";
  return fmt::format("--optimizer is {}, expected {}", to_string(kind), optimizers_with_momentum());
}

template <class Member>
std::optional<std::string> if_taken(const TrainRequest& request, Member member, std::string text) {
  const bool is_taken = model::takes(request.optimizer.kind, member);
  return is_taken ? std::optional(std::move(text)) : std::nullopt;
}

std::optional<std::string> of_step_rate(const TrainRequest& request, std::string text) {
  return request.rates.schedule == "step" ? std::optional(std::move(text)) : std::nullopt;
}

Named large_batch(LargeBatchSection& section) {
  Named slot = named_or_none(section.rules, parse_large_batch,
                             [](const LargeBatchRules& rules) { return to_string(rules); });
  slot.stands_alone = true;
  return slot;
}

/// How long a run is, and how many samples a step has.
std::vector<Row> length_rows() {
  return {
      {.name = "--epochs",
       .slot = at<&R::run, &RunRequest::epochs>,
       .help = "Passes over the training set",
       .least = 0},
      {.name = "--steps",
       .slot = at<&R::run, &RunRequest::steps>,
       .help = "Stop after this many optimiser steps",
       .least = 1},
      {.name = "--schedule-steps",
       .keyword = "total_steps",
       .changes = Changes::Learning,
       .slot = at<&R::run, &RunRequest::schedule_steps>,
       .help = "cosine, linear, CosineAnnealingLR, OneCycleLR: optimiser steps until the last "
               "learning rate (default: those of the run; a run that is resumed keeps the length "
               "that it began with)",
       .least = 1,
       .idle = [](const RunFacts& facts) -> std::string {
         if (train::has_end(facts.request.rates)) return "";
         return fmt::format("--lr-schedule is {}, which has no end or says where",
                            facts.request.rates.schedule);
       },
       .kept = [](const R& r) -> std::optional<std::string> {
         if (!train::has_end(r.rates)) return std::nullopt;
         return r.run.schedule_steps ? fmt::to_string(*r.run.schedule_steps) : "none";
       }},
      {.name = "--warmup-steps",
       .slot = at<&R::run, &RunRequest::warmup_steps>,
       .help = "First steps, which do not count for throughput",
       .least = 0,
       .idle = [](const RunFacts& facts) -> std::string {
         if (facts.steps == 0 || facts.request.run.warmup_steps < facts.steps) return "";
         return fmt::format("the run has {} steps in all, and a throughput needs one of them",
                            facts.steps);
       }},
      {.name = "--batch-size",
       .keyword = "batch_size",
       .changes = Changes::Both,
       .slot = at<&R::run, &RunRequest::batch_size>,
       .help = fmt::format("Samples per optimiser step, over all workers (default: the plan's, or "
                           "{})",
                           kUsualBatchSize),
       .idle = [](const RunFacts& facts) -> std::string {
         const int64_t samples = facts.training_samples;
         const bool fills = facts.request.data.drop_last || facts.request.data.carry_state;
         if (samples == 0 || fills || facts.request.run.batch_size.value_or(0) <= samples)
           return "";
         return fmt::format("the data have {} training samples: a step has all of them", samples);
       }}};
}

std::vector<Row> optimizer_rows() {
  using model::OptimizerSpec;
  using train::LearningRateSpec;
  return {{.name = "--optimizer",
           .keyword = "optimizer",
           .changes = Changes::Learning,
           .slot = [](R& r) -> Slot { return named_optimizer(r.optimizer); },
           .help = optimizer_help()},
          {.name = "--lr",
           .keyword = "lr",
           .changes = Changes::Learning,
           .slot = at<&R::rates, &LearningRateSpec::base>,
           .help = fmt::format("Learning rate; {} with --data {}", kMadeDataRate, kMadeData)},
          {.name = "--momentum",
           .keyword = "momentum",
           .changes = Changes::Learning,
           .slot = at<&R::optimizer, &OptimizerSpec::momentum>,
           .help = momentum_help(),
           .usual = [] { return std::string("0.9; rmsprop: 0; muon: 0.95"); },
           .idle = without_momentum,
           .kept =
               [](const R& r) {
                 return if_taken(r, &OptimizerSpec::momentum, fmt::to_string(r.optimizer.momentum));
               }},
          {.name = "--nesterov",
           .keyword = "nesterov",
           .changes = Changes::Learning,
           .slot = at<&R::optimizer, &OptimizerSpec::nesterov>,
           .help = "Nesterov momentum for sgd; muon has it",
           .kept =
               [](const R& r) {
                 return if_taken(r, &OptimizerSpec::nesterov, r.optimizer.nesterov ? "yes" : "no");
               }},
          {.name = "--weight-decay",
           .keyword = "weight_decay",
           .changes = Changes::Learning,
           .slot = at<&R::optimizer, &OptimizerSpec::weight_decay>,
           .help = "Weight decay (L2 penalty; adamw, nadamw, lion, lamb, adafactor, muon, soap: "
                   "taken off the weight)"}};
}

std::vector<Row> rate_rows() {
  using train::LearningRateSpec;
  return {
      {.name = "--lr-schedule",
       .keyword = "lr_schedule",
       .changes = Changes::Learning,
       .slot = at<&R::rates, &LearningRateSpec::schedule>,
       .help = "constant, step, cosine, linear, or a class of torch.optim.lr_scheduler with its "
               "arguments, such as MultiStepLR,milestones=30:80,gamma=0.1; A@STEP:B is B from "
               "that step on, A*B both multiplied"},
      {.name = "--lr-warmup",
       .keyword = "lr_warmup",
       .changes = Changes::Learning,
       .slot = at<&R::rates, &LearningRateSpec::warmup_steps>,
       .help = "Steps over which the learning rate rises from near zero",
       .least = 0},
      {.name = "--lr-factor",
       .keyword = "lr_factor",
       .changes = Changes::Learning,
       .slot = at<&R::rates, &LearningRateSpec::factor>,
       .help = "step: multiply the learning rate by this",
       .idle = without_steps_of_rate,
       .kept = [](const R& r) { return of_step_rate(r, fmt::to_string(r.rates.factor)); }},
      {.name = "--lr-every",
       .keyword = "lr_every",
       .changes = Changes::Learning,
       .slot = at<&R::rates, &LearningRateSpec::every>,
       .help = "step: multiply after this many steps",
       .least = 1,
       .idle = without_steps_of_rate,
       .kept = [](const R& r) { return of_step_rate(r, fmt::to_string(r.rates.every)); }}};
}

std::vector<Row> large_batch_rows() {
  using train::LearningRateSpec;
  return {{.name = "--large-batch",
           .keyword = "large_batch",
           .changes = Changes::Learning,
           .slot = [](R& r) -> Slot { return large_batch(r.large_batch); },
           .help = fmt::format(
               "Rules of Goyal et al. (2017) for steps of more samples than --base-batch-size: all "
               "(without a name), or names and -names, such as all,-gamma; {}",
               large_batch_help())},
          {.name = "--base-batch-size",
           .keyword = "base_batch_size",
           .changes = Changes::Learning,
           .slot = at<&R::large_batch, &LargeBatchSection::base>,
           .help = "Samples per step for which --lr is right",
           .least = 1,
           .needs = "--large-batch"},
          {.name = "--scale-steps",
           .keyword = "scale_steps",
           .changes = Changes::Learning,
           .slot = at<&R::rates, &LearningRateSpec::scale_steps>,
           .help = "Steps over which the learning rate grows to that of the large batch (default: "
                   "those of 5 epochs)",
           .least = 1,
           .needs = "--large-batch"}};
}

/// Of the weights.
std::vector<Row> mean_rows() {
  using train::WeightMean;
  return {
      {.name = "--ema",
       .keyword = "ema",
       .changes = Changes::Learning,
       .slot = at<&R::mean, &WeightMean::ema>,
       .help = "Evaluate with an exponential mean of the weights, whose old value keeps this "
               "share in each step, such as 0.999 (AveragedModel of torch.optim.swa_utils)",
       .least = 0,
       .most = 1,
       .excludes = {"--swa-start", "--swa-trigger"}},
      {.name = "--swa-start",
       .keyword = "swa_start",
       .changes = Changes::Learning,
       .slot = at<&R::mean, &WeightMean::swa_start>,
       .help = "Evaluate with the mean of the weights of all steps after this many (SWA)",
       .least = 0,
       .excludes = {"--swa-trigger"}},
      {.name = "--swa-trigger",
       .keyword = "swa_trigger",
       .changes = Changes::Learning,
       .slot = at<&R::mean, &WeightMean::swa_patience>,
       .help = "The same from the first evaluation on that is worse than the best of all but the "
               "last N before it. With --optimizer sgd --momentum 0 and N = 5 that is NT-ASGD",
       .least = 0,
       .excludes = {"--no-eval"}}};
}

std::vector<Row> gradient_rows() {
  return {{.name = "--clip-norm",
           .keyword = "clip_norm",
           .changes = Changes::Both,
           .slot = at<&R::run, &RunRequest::clip_norm>,
           .help = "Clip the global gradient norm to this value; inf: only record the norm",
           .may_be_infinite = true,
           .kept = [](const R& r) -> std::optional<std::string> {
             return r.run.clip_norm > 0 ? fmt::to_string(r.run.clip_norm) : "none";
           }},
          {.name = "--gradient-groups",
           .keyword = "gradient_groups",
           .changes = Changes::Plan,
           .slot = at<&R::run, &RunRequest::gradient_groups>,
           .help = "flush: sum gradients in this many groups of micro-batches, a multiple of every "
                   "stage's replicas (default: the smallest number possible). Runs with the same "
                   "number agree bit for bit, whatever their number of workers",
           .idle = [](const RunFacts& facts) -> std::string {
             if (facts.request.run.gradient_groups <= facts.plan.micro_batches) return "";
             return fmt::format("a step has {} micro-batches, each a group of its own already",
                                facts.plan.micro_batches);
           }}};
}

}  // namespace

std::vector<Row> learning_rows() {
  return in<R>(Section::Learning, "the caller's loop decides",
               joined<R>({length_rows(), optimizer_rows(), rate_rows(), large_batch_rows(),
                          mean_rows(), gradient_rows()}));
}

}  // namespace penstock::options
