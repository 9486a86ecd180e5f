#include "penstock/planner/families/auto_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "penstock/planner/families/notes.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

using plan::Plan;
using plan::Strategy;
using plan::WeightPolicy;

namespace {

// Of the time left: for the partitioner's optimum, for each first turn, and for each of the others.
constexpr double kShareOfOptimum = 0.25;
constexpr double kShareOfFirstTurns = 0.125;
constexpr double kShareOfLaterTurns = 0.5;

std::vector<Strategy> families_to_try(const Context& context, const Families& families,
                                      Strategy pipeline) {
  const PlanOptions& options = context.options;
  std::vector<Strategy> all;
  if (options.use_all_workers) return all;
  if (!options.straight)
    all = {Strategy::Serial, Strategy::DataParallel, Strategy::Hybrid, pipeline};
  if (options.synchronous_pipelines)
    std::ranges::copy(synchronous_pipelines(), std::back_inserter(all));
  return families.by_bound(all);
}

class Turns {
 public:
  Turns(const Context& context, Families& families, double samples_per_s)
      : context_(context), families_(families), samples_per_s_(samples_per_s) {}

  /// No plan: none is fast enough.
  PlanResult fastest(const std::vector<Strategy>& all) {
    for (const Strategy strategy : all) have_turn(strategy, kShareOfFirstTurns);
    // Those that needed least are the nearest to their end.
    std::ranges::stable_sort(unfinished_, std::less(), &Unfinished::took);
    families_.go_on();
    for (size_t k = unfinished_.size(); k > 0; --k) {
      const Strategy strategy = unfinished_.front().strategy;
      unfinished_.erase(unfinished_.begin());
      have_turn(strategy, k == 1 ? 1 : kShareOfLaterTurns);
    }
    if (!unfinished_.empty()) families_.note_out_of_time();
    return std::move(best_);
  }

 private:
  struct Unfinished {
    Strategy strategy = Strategy::Serial;
    std::chrono::nanoseconds took{0};
  };

  // No more than that share of the time that is left.
  void have_turn(Strategy strategy, double share) {
    if (families_.bound_samples_per_s(strategy) <= samples_per_s_) return;
    const SearchTime::Turn turn(*context_.time, share);
    const auto begin = TimeLimit::Clock::now();
    PlanResult other = families_.faster(strategy, samples_per_s_);
    if (families_.was_cut_short())
      unfinished_.push_back({strategy, TimeLimit::Clock::now() - begin});
    if (!other.plan) return;
    best_ = std::move(other);
    samples_per_s_ = kFaster * best_.plan->prediction.throughput_samples_per_s;
  }

  const Context& context_;
  Families& families_;
  double samples_per_s_;  // that the next one has to exceed
  PlanResult best_;
  std::vector<Unfinished> unfinished_;
};

// A longer step spreads one synchronisation over more samples, for dp as for any other kind: so dp
// with a step as long competes, and its rate is told. May replace the plan.
void compare_with_equal_steps(const Context& context, Families& families, PlanResult& result) {
  const PlanOptions& options = context.options;
  Plan& plan = *result.plan;
  const PlanResult& usual = families.standard(Strategy::DataParallel);
  if (options.straight || !usual.plan || plan.strategy == Strategy::DataParallel ||
      plan.micro_batches <= usual.plan->micro_batches)
    return;
  PlanResult equal = families.data_parallel(plan.micro_batches);
  if (!equal.plan) return;
  const double samples_per_s = equal.plan->prediction.throughput_samples_per_s;
  if (samples_per_s >= plan.prediction.throughput_samples_per_s) {
    result = std::move(equal);
    return;
  }
  plan.explanation.notes.push_back(
      fmt::format("With steps of as many samples as here ({}), dp makes {} samples/s.",
                  saturating_mul(equal.plan->micro_batches, equal.plan->micro_batch_size),
                  format_rate(samples_per_s)));
}

// Whether something beats the optimum is known no better than that optimum itself. The gap of
// workers with several stages is measured against a bound of its own.
void explain_choice(const Plan& optimum, Plan& plan) {
  if (!plan.shares_workers())
    plan.explanation.optimality_gap =
        std::max(plan.explanation.optimality_gap, optimum.explanation.optimality_gap);
  plan.explanation.notes.push_back(fmt::format(
      "The partitioner's optimum was {} {} ({} for its slowest part); simulated, this plan is "
      "{:.2f}x as fast.",
      to_string(optimum.strategy), short_config(optimum),
      format_duration(optimum.prediction.bottleneck_ns),
      plan.prediction.throughput_samples_per_s /
          std::max(optimum.prediction.throughput_samples_per_s, 1e-300)));
}

}  // namespace

bool may_be_replaced(const Context& context) {
  const PlanOptions& options = context.options;
  return !options.strategy && options.cost_model == "penstock" &&
         options.weights.value_or(WeightPolicy::Flush) == WeightPolicy::Flush;
}

PlanResult fastest_of_all(const Context& context, Families& families, Strategy pipeline,
                          const std::function<PlanResult()>& optimum) {
  PlanResult result;
  bool ended = false;
  try {
    const SearchTime::Turn turn(*context.time, kShareOfOptimum);
    result = optimum();
  } catch (const SearchEnded&) {
    ended = true;
  }
  const double samples_per_s =
      result.plan ? kFaster * result.plan->prediction.throughput_samples_per_s : 0;
  PlanResult better =
      Turns(context, families, samples_per_s).fastest(families_to_try(context, families, pipeline));
  if (!better.plan) {
    if (result.plan || !ended) return result;
    families.go_on();
    return optimum();  // outside of a turn, so that there is an answer
  }
  compare_with_equal_steps(context, families, better);
  if (result.plan) {
    explain_choice(*result.plan, *better.plan);
  } else if (!ended) {
    better.plan->explanation.notes.push_back("Not the partitioner's optimum: " + result.reason +
                                             ".");
  }
  return better;
}

}  // namespace penstock::planner
