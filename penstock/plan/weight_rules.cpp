#include "penstock/plan/weight_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::plan {
namespace {

using Delays = VersionDelays;

constexpr int64_t one(const VersionsPlace&) { return 1; }
constexpr int64_t noted(const VersionUse& use) { return use.noted; }
constexpr int64_t newest(const VersionUse& use) { return use.steps; }
constexpr Delays forward_only(const DelayPlace& place) { return {place.ahead, 0}; }

constexpr std::array<WeightPolicyTraits, 6> kPolicies = {{
    {.policy = WeightPolicy::Flush,
     .name = "flush",
     .summary = "the weights since the last step, for which the pipeline drains",
     .version = [](const VersionUse& use) { return use.mini_batch; },
     .delays = [](const DelayPlace&) { return Delays{}; },
     .versions = one,
     .one_version = true,
     .drains = true},
    {.policy = WeightPolicy::Stash,
     .name = "stash",
     .summary = "the weights that the forward pass saw",
     .version = noted,
     .note = VersionNote::OfStage,
     .delays =
         [](const DelayPlace& place) {
           return Delays{place.ahead, place.ahead};
         },
     // Right after a step the other micro-batches in flight are on older versions, one version per
     // share of a step.
     .versions =
         [](const VersionsPlace& place) { return ceil_div(place.in_flight - 1, place.share) + 1; },
     .versions_by_share = true},
    {.policy = WeightPolicy::VerticalSync,
     .name = "vertical-sync",
     .summary = "the weights that the input stage saw, at every stage",
     .version = noted,
     .note = VersionNote::OfInputStage,
     .delays =
         [](const DelayPlace& place) {
           return Delays{place.ahead_at_input, place.ahead_at_input};
         },
     .versions = [](const VersionsPlace& place) { return place.workers; }},
    {.policy = WeightPolicy::TwoBuffered,
     .name = "2bw",
     .summary = "the weights of one step ago",
     .version = [](const VersionUse& use) { return std::max<int64_t>(use.mini_batch - 1, 0); },
     .delays =
         [](const DelayPlace& place) {
           return Delays{place.step, place.step};
         },
     .versions = [](const VersionsPlace&) -> int64_t { return 2; },
     .fills_pipeline = true},
    {.policy = WeightPolicy::Latest,
     .name = "latest",
     .summary = "the newest weights, for comparison",
     .version = newest,
     .delays = forward_only,
     .versions = one,
     .one_version = true,
     .backward_reads_newest = true},
    {.policy = WeightPolicy::Current,
     .name = "current",
     .summary = "the newest micro-batch on the newest weights",
     .version = newest,
     .delays = forward_only,
     .versions = one,
     .one_version = true,
     .backward_reads_newest = true,
     .newest_only = true},
}};

constexpr bool policies_in_order() {
  for (size_t i = 0; i < kPolicies.size(); ++i) {
    if (static_cast<size_t>(kPolicies[i].policy) != i) return false;
  }
  return true;
}
static_assert(policies_in_order());

constexpr bool as_declared() {
  for (const WeightPolicyTraits& row : kPolicies) {
    if (row.backward_reads_newest != backward_reads_newest(row.policy)) return false;
    if (row.one_version != keeps_one_version(row.policy)) return false;
  }
  return true;
}
static_assert(as_declared());

}  // namespace

std::span<const WeightPolicyTraits> weight_policies() { return kPolicies; }

const WeightPolicyTraits& traits(WeightPolicy policy) {
  return kPolicies[static_cast<size_t>(policy)];
}

std::string weight_policy_names() {
  std::string names(kPolicies.front().name);
  for (size_t i = 1; i < kPolicies.size(); ++i)
    names += fmt::format("{}{}", i + 1 < kPolicies.size() ? ", " : " or ", kPolicies[i].name);
  return names;
}

// Of weight_policy.h.

std::string_view to_string(WeightPolicy policy) { return traits(policy).name; }

WeightPolicy parse_weight_policy(std::string_view name) {
  for (const WeightPolicyTraits& row : kPolicies) {
    if (row.name == name) return row.policy;
  }
  throw ConfigError(fmt::format("unknown weight policy '{}', expected {}", name.substr(0, 40),
                                weight_policy_names()));
}

}  // namespace penstock::plan
