// The strategies: one enumerator and one row of traits each. Whatever another part needs to know
// of any strategy stands in its row (strategy.cpp). Code names a strategy only where it has a part
// of its own (the planner's starting points, reports' comparisons); a new one needs no such place.
// docs/extending.md says how to add one.
//
//   const StrategyTraits& row = traits(Strategy::ZbV);
//   row.name == "zb-v"; row.placement == Placement::V; row.splits_backward; row.flushes();
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/weight_policy.h"

namespace penstock::plan {

/// In the order in which they are listed for people.
enum class Strategy : uint8_t {
  Serial,
  DataParallel,
  ModelParallel,
  Hybrid,
  GPipe,
  OneFOneB,
  TwoBuffered,
  OneFOneBFlush,
  EagerOneFOneB,
  Interleaved,
  InterleavedZb,
  ZbH1,
  ZbH2,
  ZbAuto,
  ZbV,
  VHalf,
  VMin,
  ZbAutoV,
  DualPipeV,
  DualPipe,
  Chimera,
  Online,
  ForwardOnly,
};
inline constexpr size_t kNumStrategies = static_cast<size_t>(Strategy::ForwardOnly) + 1;

/// Which stages a worker holds (schedule/placement.h draws them).
enum class Placement : uint8_t {
  OneStage,       ///< one replica of one stage
  Loop,           ///< stages r, p + r, 2p + r, ... of p workers
  V,              ///< stages r and 2p - 1 - r
  Bidirectional,  ///< stage r of one pipeline, stage p - 1 - r of another that runs the other way
};

/// How the model may be cut.
enum class Extent : uint8_t {
  OneWorker,  ///< one stage with one replica
  OneStage,   ///< one stage with any number of replicas
  Pipeline,   ///< any stages, with any replicas as far as the placement allows
};

/// The rule by which a worker's whole list is made, where there is a simple one
/// (schedule/lazy_schedule.h): a forward while fewer micro-batches than a fixed number are in
/// flight, a backward otherwise, mini-batch by mini-batch where the strategy flushes.
enum class InFlight : uint8_t {
  One,
  Warmup,  ///< 1F1B's depth (schedule::warmup_depths())
  All,     ///< all micro-batches of a mini-batch
  NoRule,  ///< the list is made by the generator alone
};

/// A worker's place in its pipeline and what it has to run: all that its stash depends on.
struct PipelinePlace {
  int64_t workers = 1;        ///< of one copy of the pipeline
  int64_t rank = 0;           ///< of the worker within its copy
  int64_t depth = 1;          ///< workers at and after its stage per replica, rounded up
  int64_t behind = 0;         ///< workers after its stage
  int64_t chunks = 1;         ///< stages of the worker
  int64_t micro_batches = 0;  ///< that it runs per optimiser step; 0: not known yet
  int64_t slack = 0;
  /// The weight policy keeps the newest micro-batch alone (WeightPolicy::Current).
  bool newest_only = false;
  int64_t keep = 0;  ///< ScheduleShape::keep
};

struct StrategyTraits {
  Strategy strategy = Strategy::Serial;
  std::string_view name;     ///< on command lines and in files
  std::string_view summary;  ///< one line for people: what it does and where it is from
  /// The strategy whose schedule its plans run under: itself, but for families of plans that have
  /// no schedule of their own.
  Strategy runs_as = strategy;
  bool trains = true;  ///< false: forwards alone, for evaluation
  /// The weight policies it can run under; the first one is the default.
  std::span<const WeightPolicy> policies;
  bool splits_backward = false;  ///< I and W, at least in places, instead of B
  Extent extent = Extent::Pipeline;
  Placement placement = Placement::OneStage;
  int chunks = 1;            ///< stages per worker when nothing is said
  bool takes_slack = false;  ///< the user chooses ScheduleShape::slack
  int64_t slack = 0;         ///< ScheduleShape::slack of all others
  /// Its order is made from the costs of the stages, and the user may choose ScheduleShape::keep.
  bool takes_keep = false;
  bool takes_streams = false;  ///< `penstock stream` runs under it
  InFlight in_flight = InFlight::NoRule;
  /// The most micro-batches that a worker keeps from forward to B or W, summed over its stages; an
  /// upper bound where replicas are unequal. The closed form of the generator's header.
  int64_t (*most_kept)(const PipelinePlace& place) = nullptr;

  // What the planner needs to know.
  bool one_worker_per_stage = false;  ///< it plans no replicas
  /// Whether "auto" may pick it among the pipelines that flush.
  bool auto_may_choose = false;
  /// Its split is chosen by simulation among several candidates, because the partitioner alone
  /// cannot tell the best: it knows neither latency nor what a worker does in between.
  bool split_by_simulation = false;
  bool in_short_list = false;  ///< shown beside every plan, not only where all are compared
  /// A strategy for which no worker keeps more; itself: none is known. With slack: the same with
  /// half of it comes first.
  Strategy lighter = strategy;
  std::string_view weakness = "";  ///< why it is slower than another plan; empty: see by figures

  /// Whether the pipeline drains before each optimiser step, unless another policy is chosen.
  constexpr bool flushes() const { return policies.front() == WeightPolicy::Flush; }
  /// Workers hold several stages.
  constexpr bool is_chunked() const { return placement != Placement::OneStage; }
  /// The user may say how many stages each worker holds.
  constexpr bool takes_chunks() const { return placement == Placement::Loop; }
  constexpr bool needs_even_stages() const {
    return placement == Placement::V || placement == Placement::Bidirectional;
  }
  /// Replicas of each stage in one copy of the pipeline: their number must be a multiple of it.
  constexpr int replicas_per_copy() const { return placement == Placement::Bidirectional ? 2 : 1; }
  /// One micro-batch at a time goes through a pipeline.
  constexpr bool is_sequential() const {
    return extent == Extent::Pipeline && in_flight == InFlight::One;
  }
};

const StrategyTraits& traits(Strategy strategy);

inline std::string_view to_string(Strategy strategy) { return traits(strategy).name; }
std::ostream& operator<<(std::ostream& out, Strategy strategy);
inline WeightPolicy default_policy(Strategy strategy) { return traits(strategy).policies.front(); }
bool supports(Strategy strategy, WeightPolicy policy);

/// In their order.
std::vector<Strategy> strategies_where(bool (*choose)(const StrategyTraits& row));
/// Those with a schedule of their own: what schedules and plans name.
std::span<const Strategy> scheduled_strategies();
/// Those that a user can choose to plan or to train.
std::span<const Strategy> training_strategies();
/// "serial, dp, mp": for messages and help texts.
std::string names_of(std::span<const Strategy> strategies);

/// Nothing when no strategy has that name.
std::optional<Strategy> find_strategy(std::string_view name);
/// Of scheduled_strategies(). Throws ConfigError listing them.
Strategy parse_scheduled_strategy(std::string_view name);
/// Of training_strategies(), or nothing for "auto", which leaves the choice to the planner. Throws
/// ConfigError listing them.
std::optional<Strategy> parse_strategy_choice(std::string_view name);
/// The name, or "auto".
std::string_view to_string(std::optional<Strategy> choice);

/// Checks what may be said of a schedule beside its strategy's name: stages per worker, slack and
/// how many micro-batches a worker keeps. Without a strategy ("auto") all may be given. Throws
/// ConfigError, in terms of the options of the command line, when a number is out of range or the
/// strategy has no such choice.
void check_schedule_options(std::optional<Strategy> choice, std::optional<int64_t> chunks,
                            std::optional<int64_t> slack, std::optional<int64_t> keep = {});

inline constexpr int kMinChunks = 2;  ///< with one stage per worker interleaved is 1f1b-flush
inline constexpr int kMaxChunks = 1'000;
inline constexpr int64_t kMaxSlack = 1'000'000;
inline constexpr int64_t kMaxKeep = 1'000'000'000;
/// Why the workers of a kind cannot keep so many micro-batches at most (Stage::keep); empty: they
/// can, or 0 asks for nothing.
std::string keep_refusal(const StrategyTraits& row, int64_t keep);

}  // namespace penstock::plan
