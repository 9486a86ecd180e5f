#include "penstock/plan/compensation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/plan/weight_rules.h"
#include "penstock/util/error.h"

namespace penstock::plan {
namespace {

/// Backward passes read what their forward passes read, some steps ago.
constexpr std::array kDelayedAlike = {WeightPolicy::Stash, WeightPolicy::VerticalSync,
                                      WeightPolicy::TwoBuffered};
constexpr std::array kDelayed = {WeightPolicy::Stash, WeightPolicy::VerticalSync,
                                 WeightPolicy::TwoBuffered, WeightPolicy::Latest,
                                 WeightPolicy::Current};
constexpr std::array kDelayedApart = {WeightPolicy::Latest};

constexpr std::array<CompensationTraits, kNumCompensations> kCompensationRows = {{
    {.compensation = Compensation::None, .name = "none", .summary = "delays as they are"},
    {.compensation = Compensation::Predict,
     .name = "predict",
     .summary = "weights ahead by the optimiser's next step times the delay",
     .policies = kDelayedAlike,
     .ahead = [](const AheadUse& use) { return use.mini_batch - use.version; },
     .copies = [](int64_t versions) { return versions; },
     .asks_next_step = true,
     .fixes_momentum = true},
    {.compensation = Compensation::Rate,
     .name = "rate",
     .summary = "learning rate divided by the delay to a power that fades",
     .policies = kDelayed,
     .divides_rate = true},
    {.compensation = Compensation::Correct,
     .name = "correct",
     .summary = "weights of backward passes moved back by a running mean of steps",
     .policies = kDelayedApart,
     .ahead =
         [](const AheadUse& use) {
           return use.is_backward ? use.forward_version - use.version : 0;
         },
     .copies = [](int64_t) -> int64_t { return 1; },
     .keeps_mean_step = true,
     .forbids_recomputation = true},
    {.compensation = Compensation::Nesterov,
     .name = "nesterov",
     .summary = "Nesterov's look-ahead with a momentum of 0.99",
     .policies = kDelayedAlike,
     .changes_optimizer = true,
     .fixes_momentum = true},
}};

constexpr bool compensations_in_order() {
  for (size_t i = 0; i < kCompensationRows.size(); ++i) {
    if (static_cast<size_t>(kCompensationRows[i].compensation) != i) return false;
  }
  return true;
}
static_assert(compensations_in_order());

template <class Rows>
std::string names_in(const Rows& rows) {
  std::string names;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) names += i + 1 < rows.size() ? ", " : " or ";
    names += to_string(rows[i]);
  }
  return names;
}

/// Why the row does not name the policy.
std::string_view reason(WeightPolicy policy) {
  const WeightPolicyTraits& row = traits(policy);
  if (row.drains) return "no gradient is computed on weights of earlier steps";
  if (row.newest_only)
    return "backward passes go through another micro-batch than their gradients'";
  if (row.backward_reads_newest) return "backward passes read newer weights than forward passes";
  return "forward and backward passes of a micro-batch read the same weights already";
}

}  // namespace

std::span<const CompensationTraits> compensations() { return kCompensationRows; }

const CompensationTraits& traits(Compensation compensation) {
  return kCompensationRows[static_cast<size_t>(compensation)];
}

std::string_view to_string(Compensation compensation) { return traits(compensation).name; }

std::string compensation_names() {
  std::array<Compensation, kNumCompensations> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kCompensationRows[i].compensation;
  return names_in(all);
}

Compensation parse_compensation(std::string_view name) {
  for (const CompensationTraits& row : kCompensationRows) {
    if (row.name == name) return row.compensation;
  }
  throw ConfigError(fmt::format("unknown compensation '{}', expected {}", name.substr(0, 40),
                                compensation_names()));
}

std::string compensation_refusal(Compensation compensation, WeightPolicy policy) {
  const CompensationTraits& row = traits(compensation);
  if (row.policies.empty() ||
      std::find(row.policies.begin(), row.policies.end(), policy) != row.policies.end())
    return {};
  return fmt::format("compensation {} does not work with weights {}, where {}; expected weights {}",
                     row.name, to_string(policy), reason(policy), names_in(row.policies));
}

std::string compensation_refusal(Compensation compensation, const CompensatedStage& stage) {
  const CompensationTraits& row = traits(compensation);
  if (row.ahead == nullptr) return {};
  const auto refusal = [&](std::string_view found, std::string_view why) {
    return fmt::format("compensation {} does not work where stage {} {}: {}", row.name, stage.stage,
                       found, why);
  };
  if (row.forbids_recomputation && stage.recompute)
    return refusal("recomputes",
                   "its backward passes go through activations of the same weights "
                   "already; expected a plan without recomputation");
  if (stage.offload)
    return refusal("moves activations to the memory of the host",
                   "moved weights stay on the device; expected a plan without offload");
  if (stage.state_parts > 1)
    return refusal("shares out the optimiser's state",
                   "a replica cannot say the steps of weights whose state others keep; expected "
                   "whole states");
  return {};
}

int64_t steps_ahead(Compensation compensation, const AheadUse& use) {
  const CompensationTraits& row = traits(compensation);
  return row.ahead == nullptr ? 0 : row.ahead(use);
}

int64_t extra_copies(Compensation compensation, int64_t versions, int64_t in_flight) {
  const CompensationTraits& row = traits(compensation);
  return row.copies == nullptr || (versions <= 1 && in_flight <= 1) ? 0 : row.copies(versions);
}

double rate_divisor(double delay, int64_t step, int64_t fade_steps) {
  if (delay <= 1 || step >= fade_steps) return 1;
  return std::pow(delay, 1 - static_cast<double>(step) / static_cast<double>(fade_steps));
}

double mean_step_decay(double delay) { return delay > 0 ? std::exp(-2 / delay) : 0; }

}  // namespace penstock::plan
