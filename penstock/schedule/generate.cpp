#include "penstock/schedule/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "penstock/plan/weight_rules.h"
#include "penstock/schedule/generators/generator.h"
#include "penstock/schedule/placement.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/common_multiple.h"

namespace penstock::schedule {
namespace {

using plan::Extent;
using plan::Placement;
using plan::StrategyTraits;

using Generator = WorkerLists (*)(const ScheduleShape& shape);

/// By enumerator.
template <size_t... index>
constexpr std::array<Generator, sizeof...(index)> generators(std::index_sequence<index...>) {
  return {&generate_compute<static_cast<Strategy>(index)>...};
}
constexpr auto kGenerators = generators(std::make_index_sequence<plan::kNumStrategies>());

/// All stages have the same number of replicas, one per copy of the pipeline, two for chimera.
void check_copies(Strategy strategy, const ScheduleShape& shape) {
  const int replicas = shape.replicas.front();
  for (int s = 0; s < shape.num_stages(); ++s) {
    const int found = shape.replicas[static_cast<size_t>(s)];
    if (found == replicas) continue;
    throw ConfigError(
        fmt::format("schedule {} needs the same number of replicas of every stage (copies of the "
                    "whole pipeline), found {} of "
                    "stage 0 and {} of stage {}",
                    to_string(strategy), replicas, found, s));
  }
  if (replicas % traits(strategy).replicas_per_copy() != 0) {
    throw ConfigError(
        fmt::format("schedule {} runs every stage in two directions: it needs an even number of "
                    "replicas of each, found {}",
                    to_string(strategy), replicas));
  }
}

/// Whether the worker holds what one worker of the placement holds (placement.h), for any numbering
/// of the workers.
bool fits(const StrategyTraits& row, std::span<const WorkerTable::Held> held, int num_stages,
          int num_chunks) {
  if (static_cast<int>(held.size()) != num_chunks) return false;
  const int first = held.front().stage.value;
  const int per_loop = num_stages / num_chunks;
  for (int c = 0; c < num_chunks; ++c) {
    const WorkerTable::Held& unit = held[static_cast<size_t>(c)];
    const int copies = row.replicas_per_copy();
    if (unit.replica / copies != held.front().replica / copies) return false;
    if (row.placement == Placement::Loop ? unit.stage.value != first + c * per_loop
                                         : c == 1 && unit.stage.value != num_stages - 1 - first) {
      return false;
    }
  }
  return row.placement != Placement::Bidirectional || held[0].replica != held[1].replica;
}

void check_placement(Strategy strategy, const ScheduleShape& shape) {
  const StrategyTraits& row = traits(strategy);
  const auto num_units = std::accumulate(shape.replicas.begin(), shape.replicas.end(), int64_t{0});
  if (!row.is_chunked()) {
    if (num_units == shape.num_workers()) return;
    throw ConfigError(fmt::format(
        "schedule {} runs one stage per worker, found {} stages and replicas on {} workers",
        row.name, num_units, shape.num_workers()));
  }
  check_copies(strategy, shape);
  if (row.needs_even_stages() && shape.num_stages() % 2 != 0) {
    throw ConfigError(fmt::format("schedule {} needs an even number of stages, found {}", row.name,
                                  shape.num_stages()));
  }
  const WorkerTable table(shape);
  const int64_t chunks = row.takes_chunks() ? num_units / table.num_workers() : 2;
  for (int32_t w = 0; w < table.num_workers(); ++w) {
    const auto held = table.held_by(WorkerId{w});
    if (shape.num_stages() % chunks == 0 &&
        fits(row, held, shape.num_stages(), static_cast<int>(chunks)))
      continue;
    throw ConfigError(fmt::format(
        "schedule {} cannot run with this placement: worker {} holds {} stages from stage "
        "{} on; with_placement() makes "
        "the placement that it needs",
        row.name, w, held.size(), held.front().stage.value));
  }
}

}  // namespace

int64_t default_accumulate(Strategy strategy, const ScheduleShape& shape) {
  if (traits(strategy).flushes()) return std::max<int64_t>(shape.micro_batches, 1);
  for (const int count : shape.replicas) {
    if (count < 1)
      throw ConfigError(fmt::format("a stage has {} replicas, expected at least 1", count));
  }
  std::optional<int64_t> accumulate = common_multiple(shape.replicas);
  if (accumulate && traits(default_policy(strategy)).fills_pipeline)
    accumulate = checked_mul(ceil_div(pipeline_depth(shape), *accumulate), *accumulate);
  if (!accumulate)
    throw ConfigError(
        "the replica counts have no usable common multiple; say how many micro-batches to "
        "accumulate");
  return *accumulate;
}

ScheduleShape with_own_slack(Strategy strategy, ScheduleShape shape) {
  const StrategyTraits& row = traits(strategy);
  if (!row.takes_slack && shape.slack == 0) shape.slack = row.slack;
  return shape;
}

ScheduleShape with_placement(Strategy strategy, ScheduleShape shape, int chunks) {
  const StrategyTraits& row = traits(strategy);
  shape = with_own_slack(strategy, std::move(shape));
  if (shape.replicas.empty()) throw ConfigError("a schedule needs at least 1 stage, found none");
  const int stages = shape.num_stages();
  if (row.takes_chunks() ? chunks < 1 : chunks != row.chunks) {
    throw ConfigError(row.takes_chunks()
                          ? fmt::format("schedule {} needs at least 1 chunk per worker, found {}",
                                        row.name, chunks)
                          : fmt::format("schedule {} has {} stages per worker, found {} chunks",
                                        row.name, row.chunks, chunks));
  }
  if (!row.is_chunked()) return shape;
  check_copies(strategy, shape);
  if (row.takes_chunks() && stages % chunks != 0) {
    throw ConfigError(
        fmt::format("schedule {} needs a number of stages divisible by the {} chunks per worker, "
                    "found {} stages",
                    row.name, chunks, stages));
  }
  shape.worker_of_replica =
      placed(row.placement, stages, chunks, shape.replicas.front() / row.replicas_per_copy());
  return shape;
}

ScheduleShape with_placement(Strategy strategy, ScheduleShape shape) {
  return with_placement(strategy, std::move(shape), traits(strategy).chunks);
}

void check_runs(Strategy strategy, const ScheduleShape& shape, int64_t max_actions) {
  const StrategyTraits& row = traits(strategy);
  if (row.runs_as != strategy) {
    throw ConfigError(fmt::format("strategy {} has no schedule of its own: its plans run under {}",
                                  row.name, to_string(row.runs_as)));
  }
  if (!shape.teams.empty()) {
    validate(shape, max_actions);
    return check_runs(strategy, without_teams(shape), max_actions);
  }
  // Splitting makes three actions of two.
  validate(shape, row.splits_backward ? max_actions / 3 * 2 : max_actions);
  if (!supports(strategy, shape.policy)) {
    throw ConfigError(fmt::format("schedule {} cannot run with weight policy {}; its own is {}",
                                  row.name, to_string(shape.policy),
                                  to_string(default_policy(strategy))));
  }
  if (row.extent == Extent::OneWorker && (shape.num_stages() != 1 || shape.replicas[0] != 1)) {
    throw ConfigError(fmt::format("schedule {} runs on 1 worker, found {} stages on {} workers",
                                  row.name, shape.num_stages(), shape.num_workers()));
  }
  if (row.extent == Extent::OneStage && shape.num_stages() != 1) {
    throw ConfigError(fmt::format("schedule {} runs 1 stage on many workers, found {} stages",
                                  row.name, shape.num_stages()));
  }
  if (shape.slack != 0 && shape.slack != row.slack && !row.takes_slack) {
    const auto takers =
        plan::strategies_where([](const StrategyTraits& other) { return other.takes_slack; });
    throw ConfigError(fmt::format("only schedule {} has slack, found {} for {}",
                                  plan::names_of(takers), shape.slack, row.name));
  }
  for (const int64_t keep : shape.keep) {
    const std::string refusal = plan::keep_refusal(row, keep);
    if (!refusal.empty()) throw ConfigError(refusal);
  }
  check_placement(strategy, shape);
}

Schedule generate(Strategy strategy, const ScheduleShape& shape) {
  check_runs(strategy, shape);
  if (!shape.teams.empty())
    return with_teams(generate(strategy, without_teams(shape)), shape.teams);
  ScheduleShape own = with_own_slack(strategy, shape);
  WorkerLists workers = kGenerators[static_cast<size_t>(strategy)](own);
  // What only made the order: the lists show it.
  own.keep.clear();
  own.costs.clear();
  own.link_units.clear();
  own.repeats = false;
  return {.kind = std::string(to_string(strategy)),
          .shape = std::move(own),
          .workers = std::move(workers)};
}

}  // namespace penstock::schedule
