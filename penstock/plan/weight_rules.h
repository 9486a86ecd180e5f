// What the weight policies do: a row each. Whatever another part needs to know of a policy stands
// in its row (weight_rules.cpp); docs/weights.md has the formulas, docs/extending.md says how to
// add one. The verifier keeps a copy of the rules of its own, so that it can find errors in these.
//
//   const WeightPolicyTraits& row = traits(WeightPolicy::TwoBuffered);
//   row.name == "2bw"; row.version({.mini_batch = 3}) == 2; row.versions({}) == 2;
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "penstock/plan/weight_policy.h"

namespace penstock::plan {

/// A pass over a micro-batch, as a policy sees it.
struct VersionUse {
  int64_t mini_batch = 0;  ///< of the micro-batch
  int64_t steps = 0;       ///< that the worker has made of the stage before the pass
  int64_t noted = 0;       ///< the steps before a forward pass of the micro-batch: VersionNote
};

/// Which forward pass of a micro-batch notes how many steps came before it.
enum class VersionNote : uint8_t { None, OfStage, OfInputStage };

/// In a schedule with a fixed number of micro-batches in flight, micro-batch b uses version
/// max(0, b - delay) / (micro-batches per step).
struct VersionDelays {
  int64_t forward = 0;
  int64_t backward = 0;
};

/// What the delays depend on, in micro-batches.
struct DelayPlace {
  int64_t step = 1;            ///< per optimiser step
  int64_t ahead = 0;           ///< forwards of the stage ahead of its backwards
  int64_t ahead_at_input = 0;  ///< the same of the input stage
};

/// What the number of versions depends on.
struct VersionsPlace {
  int64_t in_flight = 1;  ///< micro-batches between forward and backward on the worker
  int64_t share = 1;      ///< micro-batches of a step that are a replica's
  int64_t workers = 1;    ///< of the pipeline
};

struct WeightPolicyTraits {
  WeightPolicy policy = WeightPolicy::Flush;
  std::string_view name;     ///< on command lines and in files
  std::string_view summary;  ///< for people: what backward passes go through
  /// The version that a forward or backward pass reads, in any schedule.
  int64_t (*version)(const VersionUse& use) = nullptr;
  VersionNote note = VersionNote::None;  ///< what `version` needs in VersionUse::noted
  /// The same rule in closed form.
  VersionDelays (*delays)(const DelayPlace& place) = nullptr;
  /// The most versions of a stage's weights that a worker keeps.
  int64_t (*versions)(const VersionsPlace& place) = nullptr;
  /// Whether they depend on VersionsPlace::share: then more replicas may need more versions.
  bool versions_by_share = false;
  bool one_version = false;  ///< a stage has one version of its weights at a time
  /// The pipeline drains before each step. Workers may hold several stages, and sums of gradients
  /// may be grouped.
  bool drains = false;
  /// A step has at least as many micro-batches as the pipeline is deep.
  bool fills_pipeline = false;
  /// Backward passes read the newest weights, not those of their forward passes.
  bool backward_reads_newest = false;
  /// Backward passes go through the newest micro-batch; a stage keeps no other.
  bool newest_only = false;
};

/// In their order.
std::span<const WeightPolicyTraits> weight_policies();
const WeightPolicyTraits& traits(WeightPolicy policy);

/// "flush, stash, vertical-sync, 2bw, latest or current": for messages and help texts.
std::string weight_policy_names();
}  // namespace penstock::plan
