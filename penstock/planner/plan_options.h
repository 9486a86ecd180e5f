// What a user may ask of the planner: a value without behaviour, known to every room of the
// planner.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/boundary_coding.h"
#include "penstock/plan/compensation.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/plan.h"
#include "penstock/plan/strategy.h"
#include "penstock/plan/weight_policy.h"
#include "penstock/util/numbers/short_floats.h"

namespace penstock::planner {

/// Whether something is done: nowhere, where the planner finds it useful, everywhere.
enum class Choice : uint8_t { Never, Auto, Always };

/// Of the planner itself, not of a worker.
inline constexpr int64_t kUsualMemoryBudget = int64_t{1} << 30;

struct PlanOptions {
  /// Nothing ("auto") takes the partitioner's own choice (1f1b, or dp / serial when a single stage
  /// is best; 1f1b-flush under weights "flush") and, under the "penstock" cost model, replaces it
  /// by serial, dp, another 1f1b, hybrid, or a synchronous pipeline where the simulator finds that
  /// more than 0.5 % faster, or does fit the memory alone. Of the synchronous kinds it picks
  /// schedule, chunks, slack, recomputation and step together. A longer step spreads a
  /// synchronisation over more samples, so dp with a step as long competes. It never picks 2bw.
  /// Where layers share weights it keeps to the kinds that flush, unless `weights` says otherwise.
  /// With a strategy the best partition of that family is found: one stage for serial and dp, one
  /// worker per stage for mp and gpipe, several stages per worker for placements of several
  /// (chunks.h), at least two stages (of any replicas) for the others where workers and layers
  /// allow it. Hybrid (hybrid.h) gives a plan whose strategy is 1f1b-flush.
  std::optional<plan::Strategy> strategy = {};
  std::optional<plan::WeightPolicy> weights = {};  ///< nothing: the kind's default
  /// Of the delays that `weights` brings. Where `weights` says nothing, the plan has weights that
  /// it works with; a plan of one stage, which has no delays, has none.
  plan::Compensation compensation = plan::Compensation::None;
  std::string cost_model = "penstock";  ///< cost_model_names()
  /// How replicas add their gradients. Nothing, as the commands have it unless told otherwise: the
  /// method whose plan is fastest, and `ordered` within 0.5 % of it. Under DiLoCo, which needs as
  /// many replicas of every stage, a plan without a strategy is dp.
  std::optional<plan::SyncMethod> sync = plan::SyncMethod();
  FloatType gradient_precision = FloatType::Float32;  ///< in which gradients travel
  /// How values and gradients travel between stages. Nothing: chosen for each boundary, the most
  /// exact one that is as fast (any_boundary.h).
  std::optional<plan::BoundaryCoding> boundary = plan::BoundaryCoding{};
  int64_t token_width = 0;  ///< CodedValues::width, of all values
  /// Of a plan that is priced as it is: the codings of these links instead, where it has them.
  std::vector<plan::Link> given_boundaries = {};
  Choice recompute = Choice::Auto;  ///< Auto: only where the memory limit requires it
  /// Whether stages move activations to the memory of their hosts and back, on devices whose
  /// `host_bandwidth` is known. Always: of all devices; then none recomputes. Auto: instead of
  /// recomputing, where that is faster.
  Choice offload = Choice::Never;
  /// Whether replicas share out the optimiser's state. Auto: only where the memory limit requires
  /// it. Not under `asynchronous`, whose replicas step by themselves.
  Choice shard_optimizer = Choice::Never;
  /// The optimiser can step parts of weights, so that replicas that are threads of one process on
  /// CPUs have their weights once, and share out its state, under flush.
  bool share_weights = false;
  /// Members of the team of each replica (tensor parallelism), on workers side by side. Nothing:
  /// chosen per stage, for the models whose profile says what teams can share out.
  std::optional<int> tensor = 1;
  /// Whether the members of teams share out the places of sequences between the layers with parts
  /// of weights. Auto: only where the memory limit requires it, and the profile knows such places.
  Choice sequence = Choice::Auto;
  /// One worker per stage, as many stages as workers (or layers, if fewer).
  bool straight = false;
  std::optional<int64_t> micro_batches = {};  ///< per mini-batch; nothing: chosen
  std::optional<int64_t> mini_batch = {};     ///< most samples per optimiser step; nothing: free
  /// Per worker; nothing: that of its device, or none.
  std::optional<int64_t> memory_limit_bytes = {};
  double optimizer_state_per_weight = 1.0;  ///< bytes per weight byte (SGD with momentum 1, Adam 2)
  /// Groups in which plans that flush sum their gradients apart, at least: a worker keeps a set of
  /// gradients for each that it holds (docs/weights.md, "What results depend on"). A run needs a
  /// multiple of all replicas. Nothing: one set on every worker is counted.
  std::optional<int64_t> gradient_groups = {};
  bool use_all_workers = false;  ///< no worker may idle; always so under "released"
  /// Stages per worker of interleaved and interleaved-zb; nothing: 2, 3 or 4, chosen.
  std::optional<int64_t> chunks = {};
  std::optional<int64_t> slack = {};  ///< of eager-1f1b; nothing: chosen
  /// Micro-batches that a worker of zb-auto or zb-auto-v keeps at most; nothing: the kind's own
  /// number, fewer where the memory limit asks for it.
  std::optional<int64_t> keep = {};
  /// Whether "auto" may pick them, with the many micro-batches per step that they want.
  bool synchronous_pipelines = true;
  /// All workers meet before each step (NORM), as where gradients are clipped by their norm.
  bool global_norm = false;
  /// Alternatives for every family, with more of them and the best micro-batch counts.
  bool compare = false;
  /// Planning ends by then, about two seconds later at most, with the best plan found
  /// (Plan::optimality_gap says how far it may be from the optimum). 0: none; then nothing depends
  /// on a clock.
  std::chrono::nanoseconds time_limit{0};
  /// What the planner's own stores may take, beside what one simulation takes (150 MB at most). It
  /// ends with the best plan found within, and says which kinds were cut short. 0: no limit.
  int64_t memory_budget_bytes = kUsualMemoryBudget;
};

/// What the commands take unless told otherwise.
inline constexpr std::chrono::seconds kUsualTimeLimit{10};

inline constexpr int kMaxPlannedWorkers = 1'000'000;
inline constexpr int64_t kMaxMicroBatchesPerStep = 1'000'000;
inline constexpr int64_t kMaxGradientGroups = 1'000'000;

}  // namespace penstock::planner
