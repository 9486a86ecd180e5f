// The schedule kinds by name, and the generators. Each generator's own header draws its grid and
// cites its source.
//
//   Schedule s = generate(parse_kind("gpipe"), {.replicas = {1, 1, 1, 1}, .micro_batches = 8,
//       .accumulate = 8});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

enum class Kind : uint8_t {
  Serial,         ///< one worker, forward then backward
  DataParallel,   ///< one stage, many replicas
  ModelParallel,  ///< one micro-batch in flight at a time
  GPipe,          ///< all forwards, then all backwards, then a flush
  /// PipeDream: one forward, one backward, no flush; round-robin over replicas where a stage has
  /// several.
  OneFOneB,
  OneFOneBFlush,  ///< the same order inside each mini-batch, with a flush (PipeDream-Flush)
  TwoBuffered,    ///< 1F1B order with double-buffered weights (PipeDream-2BW)
  /// 1f1b-flush with `slack` more micro-batches in flight per stage that follows, to hide latency.
  EagerOneFOneB,
  Interleaved,  ///< 1f1b-flush with several stages per worker (Megatron-LM, SC 2021)
  ZbH1,         ///< split backward, 1F1B's memory (Qi et al., Zero Bubble, ICLR 2024)
  /// Split backward, twice the memory, no bubble with enough micro-batches (same paper).
  ZbH2,
  ZbV,  ///< split backward, two stages per worker in a V (Qi et al., 2024)
  /// DualPipe cut in half: two stages per worker in a V, forwards paired with backwards (DeepSeek,
  /// 2025).
  DualPipeV,
  /// Two pipelines in opposite directions over the same workers (Li and Hoefler, SC 2021).
  Chimera,
  ForwardOnly,  ///< evaluation: forwards alone
};

/// "serial", "dp", "mp", "gpipe", "1f1b", "1f1b-flush", "2bw", "eager-1f1b", "interleaved",
/// "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "chimera", "forward-only".
std::string_view to_string(Kind kind);
/// Throws ConfigError listing the names.
Kind parse_kind(std::string_view name);
/// A kind that trains, by the name that `penstock train --strategy` knows. Throws ConfigError
/// listing them (and "auto").
Kind parse_strategy(std::string_view name);
/// All kinds, in the order above.
std::vector<Kind> all_kinds();
/// One line for people: what it does and where it is from.
std::string_view describe(Kind kind);
/// The policy the kind runs with when none is asked for.
WeightPolicy default_policy(Kind kind);
/// Whether the kind can run under the policy (1f1b: stash, vertical-sync, latest; 2bw: 2bw; the
/// others: flush).
bool supports(Kind kind, WeightPolicy policy);
/// Micro-batches per step when none is asked for: the shape's micro_batches for kinds with a flush,
/// the least common multiple of the replica counts for 1f1b, and for 2bw the smallest multiple of
/// that which reaches the depth.
int64_t default_accumulate(Kind kind, const ScheduleShape& shape);

/// Whether workers hold two stages in a V: zb-v, dualpipe-v.
bool is_v(Kind kind);
/// Whether workers hold several stages: those, interleaved and chimera.
bool is_chunked(Kind kind);
/// Stages that a worker holds when nothing is said: 2 for interleaved, zb-v and dualpipe-v,
/// otherwise 1 (chimera: one stage in each direction).
int default_chunks(Kind kind);
/// The shape with the worker_of_replica that the kind expects (placement.h), `chunks` stages per
/// worker. Where workers hold several stages, replicas must be alike (copies of the pipeline), and
/// even for chimera, whose two directions are replicas; otherwise the shape is returned as it is.
/// Throws ConfigError saying what the kind needs.
ScheduleShape with_placement(Kind kind, ScheduleShape shape, int chunks);

/// Throws ConfigError when the shape is invalid (validate()) or the kind cannot run it: dp with 2
/// stages, serial with 2 workers, an unsupported policy, slack without eager-1f1b,
/// worker_of_replica that are not with_placement()'s up to the workers' numbers. O(replicas).
void check_runs(Kind kind, const ScheduleShape& shape, int64_t max_actions = kMaxActions);

/// Compute actions only, without R. Throws ConfigError as check_runs(). O(actions + workers).
Schedule generate(Kind kind, const ScheduleShape& shape);

}  // namespace penstock::schedule
