#include "penstock/planner/families/notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "penstock/plan/shared_weights.h"
#include "penstock/plan/weight_rules.h"
#include "penstock/planner/pricing/traffic.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/schedule/schedule.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/rounding.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

using plan::Plan;
using plan::Stage;
using plan::Strategy;

namespace {

// Filling and draining alone leave a simulated pipeline above this share of its steady rate.
constexpr double kNearSteady = 0.95;
// Plans closer than this are as fast as each other.
constexpr double kSame = 0.995;

std::string listed(const std::vector<size_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  }
  return text;
}

// The share of its slowest part's rate that the plan reaches, simulated: more than 1 where links
// carry both directions at once, or several of them the messages of a boundary.
double reached_share(const Plan& plan) {
  return plan.prediction.throughput_samples_per_s *
         static_cast<double>(std::max<int64_t>(plan.prediction.bottleneck_ns, 1)) /
         (1e9 * static_cast<double>(std::max<int64_t>(plan.micro_batch_size, 1)));
}

std::string slowest_part(const Context& context, const Plan& plan) {
  if (plan.shares_workers()) {
    const BusiestWorker busiest = busiest_worker(context, plan);
    if (nearest(busiest.ns) < plan.prediction.bottleneck_ns) {
      return fmt::format("The slowest part is a link between workers: {} per micro-batch.",
                         format_duration(plan.prediction.bottleneck_ns));
    }
    return fmt::format("The slowest part is worker {} ({} {}), {} per micro-batch.", busiest.worker,
                       busiest.stages.size() == 1 ? "stage" : "stages", listed(busiest.stages),
                       format_duration(plan.prediction.bottleneck_ns));
  }
  size_t slowest = 0;
  for (size_t s = 1; s < plan.stages.size(); ++s) {
    if (stage_ns(context, plan, s) > stage_ns(context, plan, slowest)) slowest = s;
  }
  const Stage& stage = plan.stages[slowest];
  if (nearest(stage_ns(context, plan, slowest)) < plan.prediction.bottleneck_ns) {
    return fmt::format("The slowest part is a link between stages: {} per micro-batch{}.",
                       format_duration(plan.prediction.bottleneck_ns),
                       reached_share(plan) > 1 ? ", if one link carried all of it" : "");
  }
  return fmt::format("The slowest part is stage {} ({}), {} per micro-batch.", slowest,
                     layer_range(stage.layers), format_duration(plan.prediction.bottleneck_ns));
}

// The share of the time of data parallelism that is neither computing nor stepping: sums of
// gradients, and the weights that sharing replicas send each other.
double sync_share(const Plan& plan) {
  const Stage& stage = plan.stages[0];
  const double working = static_cast<double>(ceil_div(plan.micro_batches, stage.replicas)) *
                             static_cast<double>(stage.work_ns()) +
                         static_cast<double>(stage.step_ns);
  const double rate = plan.prediction.throughput_samples_per_s;
  const double samples = static_cast<double>(std::max<int64_t>(plan.micro_batch_size, 1)) *
                         static_cast<double>(plan.micro_batches);
  return rate > 0 ? std::max(0.0, 1 - working * rate / (1e9 * samples)) : 0;
}

// Long runs of equal stages by their number.
std::string short_config(const std::string& config) {
  std::vector<std::string> counts{""};
  for (const char c : config) {
    if (c == '-') {
      counts.emplace_back();
    } else {
      counts.back() += c;
    }
  }
  std::string text;
  for (size_t begin = 0; begin < counts.size();) {
    size_t end = begin + 1;
    while (end < counts.size() && counts[end] == counts[begin]) ++end;
    if (end - begin < 4) end = begin + 1;
    text += fmt::format("{}{}", text.empty() ? "" : "-", counts[begin]);
    if (end - begin > 1) text += fmt::format("x{}", end - begin);
    begin = end;
  }
  return text.size() > 40 ? fmt::format("{} stages", counts.size()) : text;
}

std::string name_of(const plan::Alternative& row) {
  if (row.strategy == Strategy::DataParallel)
    return fmt::format("Data parallelism over {} workers", row.config);
  if (row.strategy == Strategy::Serial) return "One worker alone";
  const std::string config = short_config(row.config);
  if (row.strategy == Strategy::ModelParallel) return fmt::format("Model parallelism ({})", config);
  return fmt::format("{} ({})", to_string(row.strategy), config);
}

// The family's own weakness, without what the winner has as well.
std::string_view own_weakness(Strategy strategy, const Plan& winner) {
  std::string_view text = traits(strategy).weakness;
  const std::string_view drains = traits(Strategy::OneFOneBFlush).weakness;
  const bool winner_drains =
      winner.stages.size() > 1 && winner.weights == plan::WeightPolicy::Flush;
  for (const std::string_view shared :
       {traits(winner.strategy).weakness, winner_drains ? drains : std::string_view()}) {
    if (shared.empty() || !text.starts_with(shared)) continue;
    constexpr std::string_view kAnd = ", and ";
    text.remove_prefix(shared.size());
    if (text.starts_with(kAnd)) text.remove_prefix(kAnd.size());
  }
  return text;
}

// What holds a slower family back, compared with the winner; empty where nothing is known that the
// winner does not share.
std::string weakness(Strategy strategy, const Plan* plan, const Plan& winner) {
  if (strategy == Strategy::DataParallel && plan != nullptr && plan->num_workers() > 1) {
    return fmt::format("{:.0f} % of its time is gradient synchronisation", 100 * sync_share(*plan));
  }
  if (const std::string_view text = own_weakness(strategy, winner); !text.empty())
    return std::string(text);
  if (plan == nullptr || plan->prediction.throughput_samples_per_s <= 0) return "";
  const double reached = reached_share(*plan);
  if (reached < kNearSteady && reached < kSame * reached_share(winner)) {
    return fmt::format("{} leave it {:.0f} % of its slowest part's rate",
                       plan->weights == plan::WeightPolicy::Flush ? "filling, draining and messages"
                                                                  : "messages and synchronisation",
                       100 * reached);
  }
  const bool longer = static_cast<double>(winner.prediction.bottleneck_ns) <
                      kSame * static_cast<double>(plan->prediction.bottleneck_ns);
  return longer ? "its slowest part takes longer" : "";
}

// `speed` is the family's throughput by the winner's.
bool same_speed(double speed) { return speed > kSame && speed < 1 / kSame; }

std::string speed_text(double speed) {
  if (same_speed(speed)) return "is as fast";
  return speed < 0.1 ? fmt::format("is {:.2g}x as fast", speed)
                     : fmt::format("is {:.2f}x as fast", speed);
}

// Why "auto" leaves a faster family alone.
std::string why_not_picked(const PlanOptions& options, const plan::Alternative& row,
                           const Plan* plan) {
  const plan::StrategyTraits& family = traits(row.strategy);
  if (traits(default_policy(row.strategy)).fills_pipeline)
    return "auto does not change how weights are kept: ask for it by name";
  if (!family.flushes() && options.weights == plan::WeightPolicy::Flush) return "it does not flush";
  if (family.runs_as != row.strategy) return "auto does not pick it: ask for it by name";
  if (options.straight && plan != nullptr &&
      plan->num_workers() > static_cast<int>(plan->stages.size()))
    return "its stages have replicas";
  if (options.cost_model != "penstock")
    return fmt::format("the cost model {} has the last word", options.cost_model);
  return "auto does not consider it here: ask for it by name";
}

std::string winning_reason(const Context& context, const Plan& winner, bool fastest) {
  if (winner.strategy == Strategy::Serial)
    return context.workers == 1 ? "It is the only worker."
                                : "More workers would only add messages.";
  if (winner.strategy == Strategy::DataParallel) {
    return fmt::format("{}{:.0f} % of its time is gradient synchronisation.",
                       fastest ? "Plain data parallelism is best: " : "", 100 * sync_share(winner));
  }
  return slowest_part(context, winner);
}

// Of a pipeline whose workers keep less than usual.
std::string what_is_kept(const Plan& plan) {
  const auto [least, most] =
      std::minmax_element(plan.stages.begin(), plan.stages.end(),
                          [](const Stage& a, const Stage& b) { return a.keep < b.keep; });
  if (least->keep == most->keep)
    return fmt::format("A worker keeps at most {} micro-batch{} from F to W.", most->keep,
                       most->keep == 1 ? "" : "es");
  constexpr size_t kFew = 16;
  std::vector<size_t> numbers;
  for (const Stage& stage : plan.stages) numbers.push_back(static_cast<size_t>(stage.keep));
  return numbers.size() <= kFew
             ? fmt::format("The workers of its stages keep at most {} micro-batches from F to W.",
                           listed(numbers))
             : fmt::format("Its workers keep at most {} to {} micro-batches from F to W.",
                           least->keep, most->keep);
}

std::string samples_text(int64_t samples) {
  return fmt::format("{} {}", samples, samples == 1 ? "sample" : "samples");
}

/// "2 of 4 stages VERB OBJECT.", if any stage does.
void add_stages_that(const Plan& plan, bool Stage::*does, std::string_view verb,
                     std::string_view object, std::vector<std::string>& notes) {
  const auto count = std::count_if(plan.stages.begin(), plan.stages.end(),
                                   [does](const Stage& stage) { return stage.*does; });
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of {} {}{} {}.", count,
      plan.stages.size() == 1 ? "1 stage" : fmt::format("{} stages", plan.stages.size()), verb,
      count == 1 ? "s" : "", object));
}

}  // namespace

std::string short_config(const Plan& plan) { return short_config(plan.config()); }

std::string layer_range(const std::vector<std::string>& layers) {
  return layers.size() == 1 ? layers.front()
                            : fmt::format("{} .. {}", layers.front(), layers.back());
}

/// Which delays the plan's weights have, and what is advised against them. Empty: none.
std::string delays_of(const Plan& plan) {
  const std::vector<double> delays = schedule::mean_delays(schedule::shape_of(plan, 1));
  const double longest = *std::max_element(delays.begin(), delays.end());
  if (longest == 0 || plan.strategy == plan::Strategy::Online) return {};
  const std::string steps = fmt::format(
      "Weights {}: gradients are computed on weights of {:.3g} steps ago, stage by stage",
      to_string(plan.weights), fmt::join(delays, ", "));
  if (plan.compensation != plan::Compensation::None) {
    return fmt::format("{}, compensated by {}: {}.", steps, to_string(plan.compensation),
                       traits(plan.compensation).summary);
  }
  if (longest <= 1) return steps + ": few enough to need no compensation.";
  std::string names;
  for (const plan::CompensationTraits& row : plan::compensations()) {
    const bool works =
        !row.policies.empty() && compensation_refusal(row.compensation, plan.weights).empty();
    if (works) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  return fmt::format("{}. Compensations that work with them: {} (docs/weights.md).", steps, names);
}

std::vector<std::string> notes_on_plan(const Context& context, const Plan& plan) {
  std::vector<std::string> notes;
  notes.push_back(slowest_part(context, plan));
  if (plan.num_workers() < context.workers) {
    notes.push_back(
        fmt::format("{} of {} workers are used: no plan of this kind is faster with more.",
                    plan.num_workers(), context.workers));
  }
  if (plan.stages.size() == 1 && plan.num_workers() > 1) {
    notes.push_back(
        fmt::format("Data parallelism: {:.0f} % of its time is gradient synchronisation.",
                    100 * sync_share(plan)));
  }
  if (context.guesses_split && traits(plan.strategy).splits_backward) {
    notes.push_back(
        "The profile does not say how long the weights' gradients take: they count as half the "
        "backward pass of layers with weights.");
  }
  add_stages_that(plan, &Stage::recompute, "run",
                  "the forward pass again instead of keeping its activations", notes);
  add_stages_that(plan, &Stage::offload, "move", "activations to the memory of the host and back",
                  notes);
  if (traits(plan.strategy).takes_keep &&
      std::all_of(plan.stages.begin(), plan.stages.end(),
                  [](const Stage& stage) { return stage.keep > 0; }))
    notes.push_back(what_is_kept(plan));
  add_stages_that(plan, &Stage::shard_optimizer, "share",
                  "out the optimiser's state over the replicas", notes);
  if (std::string delays = delays_of(plan); !delays.empty()) notes.push_back(std::move(delays));
  const double steady_per_s =
      static_cast<double>(plan.micro_batch_size) * 1e9 /
      static_cast<double>(std::max<int64_t>(plan.prediction.bottleneck_ns, 1));
  const bool overlaps = !traits(plan.strategy).flushes();
  if (overlaps && plan.prediction.throughput_samples_per_s < kNearSteady * steady_per_s) {
    notes.push_back(
        fmt::format("Simulated, it reaches {:.0f} % of what its slowest part allows: with {} in "
                    "flight per worker of stage 0, messages are not "
                    "hidden completely.",
                    100 * plan.prediction.throughput_samples_per_s / steady_per_s, plan.depth));
  }
  if (plan.explanation.optimality_gap > 0) {
    notes.push_back(fmt::format(
        "{}: the slowest {} may be up to {:.2f} % above the least possible.",
        plan.shares_workers()
            ? "Cuts that suit several stages per worker are not proven to be the best"
            : "The cuts are too many to try them all",
        plan.shares_workers() ? "worker" : "part", 100 * plan.explanation.optimality_gap));
  }
  if (plan.weights != plan::WeightPolicy::Flush &&
      plan::stages_share_weights(plan, context.profile.graph)) {
    notes.push_back(fmt::format(
        "Warning: stages share weights, so it cannot be trained with weights {}, only with flush.",
        to_string(plan.weights)));
  }
  if (context.profile.batch_size == 0) {
    notes.push_back(
        "The profile does not say its batch size, which can be given: throughput counts each "
        "micro-batch as one sample.");
  }
  return notes;
}

void explain_rows(const Context& context, Families& families, const Plan& winner,
                  std::vector<FamilyRow>& rows) {
  const bool fastest = std::none_of(rows.begin(), rows.end(), [&](const FamilyRow& row) {
    return row.entry.throughput_samples_per_s * kSame > winner.prediction.throughput_samples_per_s;
  });
  for (FamilyRow& row : rows) {
    plan::Alternative& entry = row.entry;
    if (!entry.note.empty()) continue;
    if (entry.strategy == winner.strategy) {
      entry.note = winning_reason(context, winner, fastest);
      continue;
    }
    const Plan* plan = row.planned ? &*families.standard(entry.strategy).plan : nullptr;
    const double speed = entry.throughput_samples_per_s /
                         std::max(winner.prediction.throughput_samples_per_s, 1e-300);
    std::string why;
    if (!same_speed(speed)) {
      // One that was asked for by name need not be the fastest.
      const bool automatic = !context.options.strategy;
      if (speed < 1) why = weakness(entry.strategy, plan, winner);
      if (speed > 1 && automatic) why = why_not_picked(context.options, entry, plan);
    }
    entry.note = fmt::format("{}{}{}.", speed_text(speed), why.empty() ? "" : ": ", why);
  }
}

std::vector<std::string> notes_on_rows(const Plan& winner, const std::vector<FamilyRow>& rows) {
  std::vector<std::string> notes;
  std::vector<std::pair<std::string, std::vector<Strategy>>> left_out;  // by reason
  std::string other_steps;
  for (const FamilyRow& row : rows) {
    const plan::Alternative& entry = row.entry;
    if (entry.strategy == winner.strategy) continue;
    if (entry.throughput_samples_per_s <= 0) {
      auto same = std::find_if(left_out.begin(), left_out.end(),
                               [&](const auto& known) { return known.first == entry.note; });
      if (same == left_out.end()) same = left_out.insert(same, {entry.note, {}});
      same->second.push_back(entry.strategy);
      continue;
    }
    notes.push_back(
        fmt::format("{} {}{}", name_of(entry), entry.note, entry.note.ends_with('.') ? "" : "."));
    if (entry.micro_batches != winner.micro_batches && entry.micro_batches > 0) {
      other_steps += fmt::format("{}{} for {}", other_steps.empty() ? "" : ", ",
                                 saturating_mul(entry.micro_batches, winner.micro_batch_size),
                                 to_string(entry.strategy));
    }
  }
  for (const auto& [reason, strategies] : left_out)
    notes.push_back(fmt::format("Left out: {}: {}.", plan::names_of(strategies), reason));
  if (!other_steps.empty()) {
    notes.push_back(fmt::format(
        "An optimiser step takes {} here, against {}: throughputs compare samples, not steps.",
        samples_text(saturating_mul(winner.micro_batches, winner.micro_batch_size)), other_steps));
  }
  return notes;
}

}  // namespace penstock::planner
