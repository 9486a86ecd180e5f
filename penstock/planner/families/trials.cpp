#include "penstock/planner/families/trials.h"

#include <fmt/format.h>

#include "penstock/planner/families/reasons.h"
#include "penstock/planner/pricing/prediction.h"
#include "penstock/simulate/simulate_plan.h"

namespace penstock::planner {

using plan::Plan;

namespace {

// More than this in one step takes too long to simulate.
constexpr int64_t kMostActionsPerStep = 250'000;

constexpr std::chrono::nanoseconds kNoTime{0};

bool is_large(const Plan& plan) {
  return plan.shares_workers() && simulate::actions_per_step(plan) > kMostActionsPerStep;
}

// Orders that are made for the costs take long where a step has many actions, and all ranks have to
// make the same: that cannot be cut short. Throws OutOfTime where it would end too late.
void check_time_for_orders(const Context& context, const Plan& plan) {
  if (!context.time->exists() || !traits(plan.strategy).takes_keep) return;
  constexpr std::chrono::nanoseconds kPerAction{15'000};
  const std::chrono::nanoseconds more = context.time->in_turn() ? kNoTime : kForPricing;
  if (simulate::actions_per_step(plan) * kPerAction > context.time->left() + more)
    throw OutOfTime();
}

}  // namespace

int64_t memory_bytes_of(const Plan& plan) {
  int64_t bytes = 0;
  for (const plan::Stage& stage : plan.stages) bytes = std::max(bytes, stage.memory_bytes);
  return bytes;
}

double most_samples_per_s(const Priced& priced) {
  return static_cast<double>(priced.plan.micro_batch_size) * 1e9 / std::max(priced.least_ns, 1.0);
}

Tried tried(const Context& context, Candidate candidate) {
  const bool may_shorten = candidate.micro_batches == 0 && !context.options.micro_batches;
  const int least = candidate.split.places.front().count;
  for (;;) {
    Priced priced = price_parts(context, candidate.split, candidate.micro_batches);
    const int64_t shorter = priced.plan.micro_batches / 2 / least * least;
    if (is_large(priced.plan)) {
      if (!may_shorten || shorter < least)
        return {std::move(candidate), {}, "a step has too many actions to be simulated"};
      candidate.micro_batches = shorter;
      continue;
    }
    check_time_for_orders(context, priced.plan);
    predict_roughly(context, candidate.split, priced.cut_bytes, priced.plan);
    if (shard_where_needed(context, candidate.split, priced.plan))
      predict_roughly(context, candidate.split, priced.cut_bytes, priced.plan);
    std::string reason = over_limit(context, candidate.split, priced.plan);
    if (reason.empty() || candidate.split.worker_of_replica.empty())
      return {std::move(candidate), std::move(priced), std::move(reason)};
    bool changed = false;
    for (size_t s = 0; s < priced.plan.stages.size() && context.recompute == Choice::Auto; ++s) {
      if (stage_fits(context, candidate.split, priced.plan, s) || candidate.split.recompute[s])
        continue;
      candidate.split.recompute[s] = true;
      changed = true;
    }
    if (changed) continue;
    if (!may_shorten || shorter < least)
      return {std::move(candidate), std::move(priced), std::move(reason)};
    candidate.micro_batches = shorter;
  }
}

void Trials::begin(double faster_than, std::string reason) {
  faster_than_ = faster_than;
  if (!refused_) refused_.emplace(std::move(reason));
}

double Trials::needed() const {
  return best_ ? std::max(faster_than_, best_->priced.plan.prediction.throughput_samples_per_s)
               : faster_than_;
}

bool Trials::offer(const Candidate& candidate) {
  try {
    context_.time->check();
    if (most_samples_per_s(price_parts(context_, candidate.split, candidate.micro_batches)) <=
        needed())
      return true;
    if (is_known(candidate)) return true;
    Tried last = tried(context_, candidate);
    if (context_.time->in_turn()) known_.push_back(candidate);
    if (!last.reason.empty()) {
      refused_->add(last);
    } else if (!best_ || last.priced.plan.prediction.throughput_samples_per_s >
                             best_->priced.plan.prediction.throughput_samples_per_s) {
      best_ = std::move(last);
      best_after_ = context_.found->now();
      context_.found->note(best_->priced.plan.strategy,
                           best_->priced.plan.prediction.throughput_samples_per_s);
    }
  } catch (const ConfigError& error) {  // the kind cannot run this split
    refused_->add(error);
  } catch (const SearchEnded&) {
    are_cut_short_ = true;
    if (!best_) throw;
    return false;
  }
  return true;
}

bool Trials::is_known(const Candidate& candidate) const {
  return std::ranges::any_of(known_, [&](const Candidate& known) {
    return known.micro_batches == candidate.micro_batches && known.split == candidate.split;
  });
}

PlanResult Trials::result() const {
  if (!best_) return {std::nullopt, refused_->text()};
  Plan plan = price(context_, best_->candidate.split, best_->candidate.micro_batches);
  plan.explanation.optimality_gap = best_->candidate.optimality_gap;
  std::string misfit = over_limit(context_, best_->candidate.split, plan);
  if (!misfit.empty()) return {std::nullopt, std::move(misfit)};
  return {std::move(plan), "", best_after_};
}

}  // namespace penstock::planner
