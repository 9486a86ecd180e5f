// The weight policies: which version of a stage's weights a micro-batch uses (docs/weights.md has
// the formulas).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace penstock::plan {

enum class WeightPolicy : uint8_t {
  /// The version since the last step; the pipeline drains before each step (synchronous SGD). 1
  /// version.
  Flush,
  /// Forward: the stage's latest; backward: the same one. Up to `depth` versions (PipeDream, SOSP
  /// 2019, 3.3).
  Stash,
  /// The version that the micro-batch saw at the input stage, at every stage (same section).
  VerticalSync,
  /// The version of one mini-batch ago, delay exactly 1, two versions (PipeDream-2BW, ICML 2021,
  /// section 3.1).
  TwoBuffered,
  /// The latest in forward and again in backward: gradients mix versions; naive, for comparison. 1
  /// version.
  Latest,
  /// The latest in forward; backward goes through the newest micro-batch that the stage has seen,
  /// whatever micro-batch the gradient comes from. Nothing is stashed; for slowly changing streams
  /// (PARTIME, ICMLA 2022). 1 version.
  Current,
};

inline constexpr std::array kWeightPolicies = {
    WeightPolicy::Flush,       WeightPolicy::Stash,  WeightPolicy::VerticalSync,
    WeightPolicy::TwoBuffered, WeightPolicy::Latest, WeightPolicy::Current};

/// "flush", "stash", "vertical-sync", "2bw", "latest", "current".
std::string_view to_string(WeightPolicy policy);
/// Throws ConfigError listing the names when `name` is none of them.
WeightPolicy parse_weight_policy(std::string_view name);

/// Whether backward passes read the newest weights, not those of their forward passes.
constexpr bool backward_reads_newest(WeightPolicy policy) {
  return policy == WeightPolicy::Latest || policy == WeightPolicy::Current;
}
/// Whether a stage has one version of its weights at a time.
constexpr bool keeps_one_version(WeightPolicy policy) {
  return policy == WeightPolicy::Flush || backward_reads_newest(policy);
}

}  // namespace penstock::plan
