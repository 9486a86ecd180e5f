#include "penstock/schedule/generate.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "penstock/schedule/generators/chimera.h"
#include "penstock/schedule/generators/data_parallel.h"
#include "penstock/schedule/generators/dualpipe_v.h"
#include "penstock/schedule/generators/eager_one_f_one_b.h"
#include "penstock/schedule/generators/forward_only.h"
#include "penstock/schedule/generators/gpipe.h"
#include "penstock/schedule/generators/interleaved.h"
#include "penstock/schedule/generators/model_parallel.h"
#include "penstock/schedule/generators/one_f_one_b.h"
#include "penstock/schedule/generators/one_f_one_b_flush.h"
#include "penstock/schedule/generators/serial.h"
#include "penstock/schedule/generators/zb_h1.h"
#include "penstock/schedule/generators/zb_h2.h"
#include "penstock/schedule/generators/zb_v.h"
#include "penstock/schedule/placement.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/common_multiple.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

bool is_split(Kind kind) { return kind == Kind::ZbH1 || kind == Kind::ZbH2 || is_v(kind); }

/// All stages have the same number of replicas, one per copy of the pipeline, two for chimera.
void check_copies(Kind kind, const ScheduleShape& shape) {
  const int replicas = shape.replicas.front();
  for (int s = 0; s < shape.num_stages(); ++s) {
    const int found = shape.replicas[static_cast<size_t>(s)];
    if (found == replicas) continue;
    throw ConfigError(
        fmt::format("schedule {} needs the same number of replicas of every stage (copies of the "
                    "whole pipeline), found {} of "
                    "stage 0 and {} of stage {}",
                    to_string(kind), replicas, found, s));
  }
  if (kind == Kind::Chimera && replicas % 2 != 0) {
    throw ConfigError(
        fmt::format("schedule chimera runs every stage in two directions: it needs an even number "
                    "of replicas of each, found {}",
                    replicas));
  }
}

/// Whether the worker holds what one worker of the kind's placement holds (placement.h), whatever
/// the workers' numbers.
bool fits(Kind kind, std::span<const WorkerTable::Held> held, int num_stages, int num_chunks) {
  if (static_cast<int>(held.size()) != num_chunks) return false;
  const int first = held.front().stage.value;
  const int per_loop = num_stages / num_chunks;
  for (int c = 0; c < num_chunks; ++c) {
    const WorkerTable::Held& unit = held[static_cast<size_t>(c)];
    const int copies = kind == Kind::Chimera ? 2 : 1;
    if (unit.replica / copies != held.front().replica / copies) return false;
    if (kind == Kind::Interleaved ? unit.stage.value != first + c * per_loop
                                  : c == 1 && unit.stage.value != num_stages - 1 - first) {
      return false;
    }
  }
  return kind != Kind::Chimera || held[0].replica != held[1].replica;
}

void check_placement(Kind kind, const ScheduleShape& shape) {
  const auto num_units = std::accumulate(shape.replicas.begin(), shape.replicas.end(), int64_t{0});
  if (!is_chunked(kind)) {
    if (num_units == shape.num_workers()) return;
    throw ConfigError(fmt::format(
        "schedule {} runs one stage per worker, found {} stages and replicas on {} workers",
        to_string(kind), num_units, shape.num_workers()));
  }
  check_copies(kind, shape);
  if (kind != Kind::Interleaved && shape.num_stages() % 2 != 0) {
    throw ConfigError(fmt::format("schedule {} needs an even number of stages, found {}",
                                  to_string(kind), shape.num_stages()));
  }
  const WorkerTable table(shape);
  const int64_t chunks = kind == Kind::Interleaved ? num_units / table.num_workers() : 2;
  for (int32_t w = 0; w < table.num_workers(); ++w) {
    const auto held = table.held_by(WorkerId{w});
    if (shape.num_stages() % chunks == 0 &&
        fits(kind, held, shape.num_stages(), static_cast<int>(chunks)))
      continue;
    throw ConfigError(fmt::format(
        "schedule {} cannot run with this placement: worker {} holds {} stages from stage "
        "{} on; with_placement() makes "
        "the placement that it needs",
        to_string(kind), w, held.size(), held.front().stage.value));
  }
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::Serial:
      return "serial";
    case Kind::DataParallel:
      return "dp";
    case Kind::ModelParallel:
      return "mp";
    case Kind::GPipe:
      return "gpipe";
    case Kind::OneFOneB:
      return "1f1b";
    case Kind::OneFOneBFlush:
      return "1f1b-flush";
    case Kind::TwoBuffered:
      return "2bw";
    case Kind::EagerOneFOneB:
      return "eager-1f1b";
    case Kind::Interleaved:
      return "interleaved";
    case Kind::ZbH1:
      return "zb-h1";
    case Kind::ZbH2:
      return "zb-h2";
    case Kind::ZbV:
      return "zb-v";
    case Kind::DualPipeV:
      return "dualpipe-v";
    case Kind::Chimera:
      return "chimera";
    case Kind::ForwardOnly:
      return "forward-only";
  }
  return "?";
}

std::vector<Kind> all_kinds() {
  return {Kind::Serial,      Kind::DataParallel,  Kind::ModelParallel, Kind::GPipe,
          Kind::OneFOneB,    Kind::OneFOneBFlush, Kind::TwoBuffered,   Kind::EagerOneFOneB,
          Kind::Interleaved, Kind::ZbH1,          Kind::ZbH2,          Kind::ZbV,
          Kind::DualPipeV,   Kind::Chimera,       Kind::ForwardOnly};
}

Kind parse_kind(std::string_view name) {
  std::string names;
  for (const Kind kind : all_kinds()) {
    if (to_string(kind) == name) return kind;
    names += names.empty() ? "" : ", ";
    names += to_string(kind);
  }
  throw ConfigError(
      fmt::format("unknown schedule '{}', expected one of {}", name.substr(0, 40), names));
}

Kind parse_strategy(std::string_view name) {
  std::string names = "auto";
  for (const Kind kind : all_kinds()) {
    if (kind == Kind::ForwardOnly) continue;
    if (to_string(kind) == name) return kind;
    names += fmt::format(", {}", to_string(kind));
  }
  throw ConfigError(
      fmt::format("unknown strategy '{}', expected one of {}", name.substr(0, 40), names));
}

std::string_view describe(Kind kind) {
  switch (kind) {
    case Kind::Serial:
      return "one worker, forward then backward";
    case Kind::DataParallel:
      return "the whole model on every worker, gradients summed before each step";
    case Kind::ModelParallel:
      return "the model cut into stages, one micro-batch in flight at a time";
    case Kind::GPipe:
      return "all forwards, then all backwards, then the step (Huang et al., NeurIPS 2019)";
    case Kind::OneFOneB:
      return "one forward, one backward, no flush; replicas take turns (PipeDream, SOSP 2019)";
    case Kind::OneFOneBFlush:
      return "one forward, one backward, flushed before each step (PipeDream-Flush, ICML 2021)";
    case Kind::TwoBuffered:
      return "one forward, one backward on double-buffered weights (PipeDream-2BW, ICML 2021)";
    case Kind::EagerOneFOneB:
      return "1f1b-flush with more micro-batches in flight, to hide latency (JaxPP, 2024)";
    case Kind::Interleaved:
      return "1f1b-flush with several stages per worker (Megatron-LM, SC 2021)";
    case Kind::ZbH1:
      return "backward split in two to fill the bubble, with 1F1B's memory (Zero Bubble, ICLR "
             "2024)";
    case Kind::ZbH2:
      return "the same with twice the memory and hardly a bubble (Zero Bubble, ICLR 2024)";
    case Kind::ZbV:
      return "split backward, two stages per worker in a V (Qi et al., NeurIPS 2024)";
    case Kind::DualPipeV:
      return "two stages per worker in a V, forwards paired with backwards (DeepSeek, 2025)";
    case Kind::Chimera:
      return "two pipelines in opposite directions over the same workers (Li and Hoefler, SC 2021)";
    case Kind::ForwardOnly:
      return "forwards alone, for evaluation";
  }
  return "";
}

WeightPolicy default_policy(Kind kind) {
  if (kind == Kind::OneFOneB) return WeightPolicy::Stash;
  if (kind == Kind::TwoBuffered) return WeightPolicy::TwoBuffered;
  return WeightPolicy::Flush;
}

bool supports(Kind kind, WeightPolicy policy) {
  if (kind != Kind::OneFOneB) return policy == default_policy(kind);
  return policy == WeightPolicy::Stash || policy == WeightPolicy::VerticalSync ||
         policy == WeightPolicy::Latest;
}

int64_t default_accumulate(Kind kind, const ScheduleShape& shape) {
  if (kind != Kind::OneFOneB && kind != Kind::TwoBuffered)
    return std::max<int64_t>(shape.micro_batches, 1);
  for (const int count : shape.replicas) {
    if (count < 1)
      throw ConfigError(fmt::format("a stage has {} replicas, expected at least 1", count));
  }
  std::optional<int64_t> accumulate = common_multiple(shape.replicas);
  if (accumulate && kind == Kind::TwoBuffered)
    accumulate = checked_mul(ceil_div(pipeline_depth(shape), *accumulate), *accumulate);
  if (!accumulate)
    throw ConfigError(
        "the replica counts have no usable common multiple; say how many micro-batches to "
        "accumulate");
  return *accumulate;
}

bool is_v(Kind kind) { return kind == Kind::ZbV || kind == Kind::DualPipeV; }

bool is_chunked(Kind kind) {
  return kind == Kind::Interleaved || kind == Kind::Chimera || is_v(kind);
}

int default_chunks(Kind kind) { return kind == Kind::Interleaved || is_v(kind) ? 2 : 1; }

ScheduleShape with_placement(Kind kind, ScheduleShape shape, int chunks) {
  if (shape.replicas.empty()) throw ConfigError("a schedule needs at least 1 stage, found none");
  const int stages = shape.num_stages();
  if (kind == Kind::Interleaved ? chunks < 1 : chunks != default_chunks(kind)) {
    throw ConfigError(
        kind == Kind::Interleaved
            ? fmt::format("schedule interleaved needs at least 1 chunk per worker, found {}",
                          chunks)
            : fmt::format("schedule {} has {} stages per worker, found {} chunks", to_string(kind),
                          default_chunks(kind), chunks));
  }
  if (!is_chunked(kind)) return shape;
  check_copies(kind, shape);
  const int replicas = shape.replicas.front();
  if (kind == Kind::Chimera) {
    shape.worker_of_replica = bidirectional_placement(stages, replicas / 2);
  } else if (is_v(kind)) {
    shape.worker_of_replica = v_placement(stages, replicas);
  } else {
    if (stages % chunks != 0) {
      throw ConfigError(
          fmt::format("schedule interleaved needs a number of stages divisible by the {} chunks "
                      "per worker, found {} stages",
                      chunks, stages));
    }
    shape.worker_of_replica = loop_placement(stages, stages / chunks, replicas);
  }
  return shape;
}

void check_runs(Kind kind, const ScheduleShape& shape, int64_t max_actions) {
  // Splitting makes three actions of two.
  validate(shape, is_split(kind) ? max_actions / 3 * 2 : max_actions);
  if (!supports(kind, shape.policy)) {
    throw ConfigError(fmt::format("schedule {} cannot run with weight policy {}; its own is {}",
                                  to_string(kind), to_string(shape.policy),
                                  to_string(default_policy(kind))));
  }
  if (kind == Kind::Serial && (shape.num_stages() != 1 || shape.replicas[0] != 1)) {
    throw ConfigError(fmt::format("schedule serial runs on 1 worker, found {} stages on {} workers",
                                  shape.num_stages(), shape.num_workers()));
  }
  if (kind == Kind::DataParallel && shape.num_stages() != 1) {
    throw ConfigError(fmt::format("schedule dp runs 1 stage on many workers, found {} stages",
                                  shape.num_stages()));
  }
  if (shape.slack != 0 && kind != Kind::EagerOneFOneB) {
    throw ConfigError(fmt::format("only schedule eager-1f1b has slack, found {} for {}",
                                  shape.slack, to_string(kind)));
  }
  check_placement(kind, shape);
}

Schedule generate(Kind kind, const ScheduleShape& shape) {
  check_runs(kind, shape);
  switch (kind) {
    case Kind::Serial:
      return serial(shape);
    case Kind::DataParallel:
      return data_parallel(shape);
    case Kind::ModelParallel:
      return model_parallel(shape);
    case Kind::GPipe:
      return gpipe(shape);
    case Kind::OneFOneB:
    case Kind::TwoBuffered:
      return one_f_one_b(to_string(kind), shape);
    case Kind::OneFOneBFlush:
      return one_f_one_b_flush(shape);
    case Kind::EagerOneFOneB:
      return eager_one_f_one_b(shape);
    case Kind::Interleaved:
      return interleaved(shape);
    case Kind::ZbH1:
      return zb_h1(shape);
    case Kind::ZbH2:
      return zb_h2(shape);
    case Kind::ZbV:
      return zb_v(shape);
    case Kind::DualPipeV:
      return dualpipe_v(shape);
    case Kind::Chimera:
      return chimera(shape);
    case Kind::ForwardOnly:
      return forward_only(shape);
  }
  throw ConfigError("unknown schedule kind");
}

}  // namespace penstock::schedule
