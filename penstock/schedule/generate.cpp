#include "penstock/schedule/generate.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "penstock/schedule/data_parallel.h"
#include "penstock/schedule/forward_only.h"
#include "penstock/schedule/gpipe.h"
#include "penstock/schedule/model_parallel.h"
#include "penstock/schedule/one_f_one_b.h"
#include "penstock/schedule/one_f_one_b_flush.h"
#include "penstock/schedule/serial.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

int64_t common_multiple(const ScheduleShape& shape) {
  int64_t multiple = 1;
  for (const int64_t count : shape.replicas) {
    if (count < 1) throw ConfigError(fmt::format("a stage has {} replicas, expected at least 1", count));
    const std::optional<int64_t> next = checked_mul(multiple / std::gcd(multiple, count), count);
    if (!next) throw ConfigError("the replica counts have no usable common multiple; say how many micro-batches to accumulate");
    multiple = *next;
  }
  return multiple;
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
    case Kind::ForwardOnly:
      return "forward-only";
  }
  return "?";
}

std::vector<Kind> all_kinds() {
  return {Kind::Serial,   Kind::DataParallel,  Kind::ModelParallel, Kind::GPipe,
          Kind::OneFOneB, Kind::OneFOneBFlush, Kind::TwoBuffered,   Kind::ForwardOnly};
}

Kind parse_kind(std::string_view name) {
  std::string names;
  for (const Kind kind : all_kinds()) {
    if (to_string(kind) == name) return kind;
    names += names.empty() ? "" : ", ";
    names += to_string(kind);
  }
  throw ConfigError(fmt::format("unknown schedule '{}', expected one of {}", name.substr(0, 40), names));
}

Kind parse_strategy(std::string_view name) {
  std::string names = "auto";
  for (const Kind kind : all_kinds()) {
    if (kind == Kind::ForwardOnly) continue;
    if (to_string(kind) == name) return kind;
    names += fmt::format(", {}", to_string(kind));
  }
  throw ConfigError(fmt::format("unknown strategy '{}', expected one of {}", name.substr(0, 40), names));
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
  return policy == WeightPolicy::Stash || policy == WeightPolicy::VerticalSync || policy == WeightPolicy::Latest;
}

int64_t default_accumulate(Kind kind, const ScheduleShape& shape) {
  if (kind != Kind::OneFOneB && kind != Kind::TwoBuffered) return std::max<int64_t>(shape.micro_batches, 1);
  const int64_t multiple = common_multiple(shape);
  if (kind == Kind::OneFOneB) return multiple;
  const std::optional<int64_t> accumulate = checked_mul(ceil_div(pipeline_depth(shape), multiple), multiple);
  if (!accumulate) throw ConfigError("the replica counts have no usable common multiple; say how many micro-batches to accumulate");
  return *accumulate;
}

void check_runs(Kind kind, const ScheduleShape& shape, int64_t max_actions) {
  validate(shape, max_actions);
  if (!supports(kind, shape.policy)) {
    throw ConfigError(fmt::format("schedule {} cannot run with weight policy {}; its own is {}", to_string(kind), to_string(shape.policy),
                                  to_string(default_policy(kind))));
  }
  if (kind == Kind::Serial && (shape.num_stages() != 1 || shape.replicas[0] != 1)) {
    throw ConfigError(
        fmt::format("schedule serial runs on 1 worker, found {} stages on {} workers", shape.num_stages(), shape.num_workers()));
  }
  if (kind == Kind::DataParallel && shape.num_stages() != 1) {
    throw ConfigError(fmt::format("schedule dp runs 1 stage on many workers, found {} stages", shape.num_stages()));
  }
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
    case Kind::ForwardOnly:
      return forward_only(shape);
  }
  throw ConfigError("unknown schedule kind");
}

}  // namespace penstock::schedule
