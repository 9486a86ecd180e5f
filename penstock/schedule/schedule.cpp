#include "penstock/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "penstock/plan/weight_rules.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {

int ScheduleShape::num_workers() const {
  int64_t count = 0;
  if (worker_of_replica.empty()) {
    for (const int replica_count : replicas) count += replica_count;
  } else {
    count = int64_t{*std::max_element(worker_of_replica.begin(), worker_of_replica.end())} + 1;
  }
  return static_cast<int>(std::min<int64_t>(count, INT32_MAX));
}

namespace {

/// The entries of worker_of_replica number the workers without gaps, and no worker holds a stage
/// twice.
/// How many members the team of each stage has; empty without teams. Of a shape whose teams are
/// valid.
std::vector<int> sizes_by_stage(const ScheduleShape& shape) {
  std::vector<int> sizes;
  for (const int size : shape.teams) sizes.insert(sizes.end(), static_cast<size_t>(size), size);
  return sizes;
}

/// A worker is the same member of all its stages' teams.
void validate_same_team_size(const std::vector<int>& team_sizes, int worker, int32_t a, int32_t b) {
  if (team_sizes.empty()) return;
  const int size_a = team_sizes[static_cast<size_t>(a)];
  const int size_b = team_sizes[static_cast<size_t>(b)];
  if (size_a == size_b) return;
  throw ConfigError(
      fmt::format("worker {} holds stages {} and {}, whose teams have {} and {} members: expected "
                  "teams of one size on each worker",
                  worker, a, b, size_a, size_b));
}

void validate_workers(const ScheduleShape& shape, int64_t num_replicas) {
  const std::vector<int>& worker_of_replica = shape.worker_of_replica;
  if (static_cast<int64_t>(worker_of_replica.size()) != num_replicas) {
    throw ConfigError(fmt::format("hosts names {} workers, the stages have {} replicas together",
                                  worker_of_replica.size(), num_replicas));
  }
  std::vector<int32_t> last_stage(worker_of_replica.size(), -1);
  const std::vector<int> team_sizes = sizes_by_stage(shape);
  size_t next = 0;
  int64_t num_workers = 0;
  for (int32_t s = 0; s < shape.num_stages(); ++s) {
    for (int k = 0; k < shape.replicas[static_cast<size_t>(s)]; ++k, ++next) {
      const int worker = worker_of_replica[next];
      if (worker < 0 || static_cast<size_t>(worker) >= worker_of_replica.size()) {
        throw ConfigError(
            fmt::format("hosts puts replica {} of stage {} on worker {}; {} replicas need workers "
                        "from 0 to at most {}",
                        k, s, worker, worker_of_replica.size(), worker_of_replica.size() - 1));
      }
      int32_t& last = last_stage[static_cast<size_t>(worker)];
      if (last == s)
        throw ConfigError(
            fmt::format("hosts puts two replicas of stage {} on worker {}", s, worker));
      if (last >= 0 && !traits(shape.policy).drains) {
        throw ConfigError(
            fmt::format("worker {} holds stages {} and {}: several stages on one worker need "
                        "weight policy flush, found {}",
                        worker, last, s, to_string(shape.policy)));
      }
      if (last >= 0) validate_same_team_size(team_sizes, worker, last, s);
      if (last < 0) ++num_workers;
      last = s;
    }
  }
  const auto gap = std::find(last_stage.begin(), last_stage.begin() + num_workers, -1);
  if (gap != last_stage.begin() + num_workers) {
    throw ConfigError(fmt::format("hosts leaves out worker {} of {}", gap - last_stage.begin(),
                                  shape.num_workers()));
  }
}

void validate_offload(const ScheduleShape& shape) {
  if (shape.offload.size() != shape.replicas.size()) {
    throw ConfigError(fmt::format("offload has {} entries, expected one for each of the {} stages",
                                  shape.offload.size(), shape.num_stages()));
  }
  for (int s = 0; s < shape.num_stages(); ++s) {
    const StageId stage{s};
    if (!shape.offloads(stage)) continue;
    if (shape.recomputes(stage))
      throw ConfigError(fmt::format(
          "stage {} recomputes, so it has no activations to move to the memory of the host", s));
    if (traits(shape.policy).newest_only)
      throw ConfigError(fmt::format(
          "stage {} moves activations to the memory of the host, but under policy {} it keeps one "
          "micro-batch",
          s, to_string(shape.policy)));
  }
}

/// Returns their number.
int64_t validate_replicas(const ScheduleShape& shape) {
  if (shape.replicas.empty()) throw ConfigError("a schedule needs at least 1 stage, found none");
  int64_t workers = 0;
  for (size_t s = 0; s < shape.replicas.size(); ++s) {
    const int count = shape.replicas[s];
    if (count < 1)
      throw ConfigError(fmt::format("stage {} has {} replicas, expected at least 1", s, count));
    workers += count;
    if (workers > kMaxWorkers) {
      throw ConfigError(
          fmt::format("a schedule holds at most {} workers, found {} in the first {} stages",
                      kMaxWorkers, workers, s + 1));
    }
  }
  return workers;
}

void validate_teams(const ScheduleShape& shape) {
  if (shape.teams.empty()) return;
  size_t next = 0;
  for (size_t t = 0; t < shape.teams.size(); ++t) {
    if (shape.teams[t] < 1)
      throw ConfigError(
          fmt::format("a team has at least 1 member, found {} of stage {}", shape.teams[t], t));
    for (int m = 0; m < shape.teams[t] && next < shape.replicas.size(); ++m, ++next) {
      const int first = shape.replicas[next - static_cast<size_t>(m)];
      if (shape.replicas[next] == first) continue;
      throw ConfigError(
          fmt::format("the members of stage {} have {} and {} replicas: expected as many of each",
                      t, first, shape.replicas[next]));
    }
  }
  const int64_t members = std::accumulate(shape.teams.begin(), shape.teams.end(), int64_t{0});
  if (members == std::ssize(shape.replicas)) return;
  throw ConfigError(fmt::format("the teams have {} members together, the schedule has {} stages",
                                members, shape.replicas.size()));
}

void validate_keep(const ScheduleShape& shape) {
  if (!shape.keep.empty() && shape.keep.size() != shape.replicas.size()) {
    throw ConfigError(fmt::format("keep has {} entries, expected one for each of the {} stages",
                                  shape.keep.size(), shape.num_stages()));
  }
  for (const int64_t keep : shape.keep) {
    if (keep < 0)
      throw ConfigError(fmt::format(
          "a worker keeps at least 1 micro-batch (0: the kind's own number), found {}", keep));
  }
}

void validate_costs(const ScheduleShape& shape) {
  if (!shape.costs.empty() && shape.costs.size() != shape.replicas.size()) {
    throw ConfigError(fmt::format("the costs are for {} stages, the schedule has {}",
                                  shape.costs.size(), shape.replicas.size()));
  }
  for (const StepCosts& costs : shape.costs) {
    const int64_t least = std::min({costs.forward, costs.input, costs.weight, costs.message,
                                    costs.finish, costs.again, costs.input - costs.again});
    if (least < 0)
      throw ConfigError(fmt::format("the cost of a step must not be negative, found {}", least));
    for (const int64_t busy : costs.busy) {
      if (busy < 0)
        throw ConfigError(
            fmt::format("a message occupies a link for at least 0 ns, found {}", busy));
    }
  }
  for (const std::vector<int32_t>& units : shape.link_units) {
    const int own = shape.num_workers();
    if (std::ssize(units) != own || std::any_of(units.begin(), units.end(), [own](int32_t unit) {
          return unit < 0 || unit >= own;
        })) {
      throw ConfigError(fmt::format(
          "link_units has {} entries for a level, expected one for each of the {} workers, from 0",
          units.size(), own));
    }
  }
}

void validate_step(const ScheduleShape& shape, int64_t max_actions) {
  if (shape.slack < 0 || shape.slack > kMaxActions) {
    throw ConfigError(fmt::format("slack must be between 0 and {} micro-batches, found {}",
                                  kMaxActions, shape.slack));
  }
  if (shape.accumulate < 1)
    throw ConfigError(
        fmt::format("accumulate must be at least 1 micro-batch, found {}", shape.accumulate));
  const int64_t actions =
      saturating_mul(saturating_mul(2, shape.num_stages()), shape.micro_batches);
  if (actions > max_actions) {
    throw ConfigError(
        fmt::format("{} micro-batches over {} stages are more than {} actions, the most that one "
                    "schedule may have",
                    shape.micro_batches, shape.num_stages(), max_actions));
  }
  if (traits(shape.policy).fills_pipeline && shape.accumulate < pipeline_depth(shape)) {
    throw ConfigError(
        fmt::format("{} needs at least as many micro-batches per step as the pipeline is deep: "
                    "accumulate is {}, depth is {}",
                    to_string(shape.policy), shape.accumulate, pipeline_depth(shape)));
  }
}

void validate_compensation(const ScheduleShape& shape) {
  std::string refusal = compensation_refusal(shape.compensation, shape.policy);
  for (int s = 0; s < shape.num_stages() && refusal.empty(); ++s) {
    refusal = compensation_refusal(shape.compensation,
                                   plan::CompensatedStage{.stage = s,
                                                          .recompute = shape.recomputes(StageId{s}),
                                                          .offload = shape.offloads(StageId{s})});
  }
  if (!refusal.empty()) throw ConfigError(refusal);
}

}  // namespace

void validate(const ScheduleShape& shape, int64_t max_actions) {
  const int64_t workers = validate_replicas(shape);
  if (shape.micro_batches < 0)
    throw ConfigError(
        fmt::format("micro-batches must be at least 0, found {}", shape.micro_batches));
  validate_teams(shape);
  if (!shape.worker_of_replica.empty()) validate_workers(shape, workers);
  if (!shape.recompute.empty() && shape.recompute.size() != shape.replicas.size()) {
    throw ConfigError(
        fmt::format("recompute has {} entries, expected one for each of the {} stages",
                    shape.recompute.size(), shape.num_stages()));
  }
  if (!shape.offload.empty()) validate_offload(shape);
  validate_compensation(shape);
  validate_keep(shape);
  validate_costs(shape);
  validate_step(shape, max_actions);
}

int64_t Schedule::num_actions() const {
  int64_t sum = 0;
  for (const auto& list : workers) sum += static_cast<int64_t>(list.size());
  return sum;
}

std::vector<StageLink> chain_links(int num_stages) {
  std::vector<StageLink> links;
  for (int s = 0; s + 1 < num_stages; ++s) links.push_back({StageId{s}, StageId{s + 1}});
  return links;
}

namespace {

/// Of each of the plan's stages, from the last one: member 0's stage, and how many members it has.
template <class Visit>
void for_each_team_backwards(const ScheduleShape& shape, Visit&& visit) {
  size_t end = shape.replicas.size();
  size_t team = shape.teams.size();
  while (end > 0) {
    const auto size = team > 0 ? static_cast<size_t>(shape.teams[--team]) : 1;
    end -= size;
    visit(end, size);
  }
}

}  // namespace

std::vector<int64_t> warmup_depths(const ScheduleShape& shape) {
  std::vector<int64_t> depths(shape.replicas.size());
  int64_t workers = 0;
  for_each_team_backwards(shape, [&](size_t first, size_t size) {
    const int64_t behind = workers;
    workers += shape.replicas[first];
    const int64_t depth = ceil_div(workers + shape.slack * behind, shape.replicas[first]);
    std::fill_n(depths.begin() + static_cast<std::ptrdiff_t>(first), size, depth);
  });
  return depths;
}

int64_t pipeline_depth(const ScheduleShape& shape) {
  int64_t depth = 1;
  int64_t workers = 0;
  for_each_team_backwards(shape, [&](size_t first, size_t) {
    const int64_t replicas = shape.replicas[first];
    workers += replicas;
    depth = std::max(depth, (ceil_div(workers, replicas) - 1) * replicas + 1);
  });
  return depth;
}

std::vector<int64_t> compensation_copies(const ScheduleShape& shape) {
  std::vector<int64_t> copies;
  if (traits(shape.compensation).copies == nullptr) return copies;
  const std::vector<int64_t> depths = warmup_depths(shape);
  int workers = 0;  // a team counts once; no worker holds several stages
  for_each_team_backwards(shape, [&](size_t first, size_t) { workers += shape.replicas[first]; });
  for (size_t s = 0; s < depths.size(); ++s) {
    const int64_t versions =
        traits(shape.policy)
            .versions({.in_flight = depths[s],
                       .share = std::max<int64_t>(1, shape.accumulate / shape.replicas[s]),
                       .workers = workers});
    copies.push_back(plan::extra_copies(shape.compensation, versions, depths[s]));
  }
  return copies;
}

std::vector<double> mean_delays(const ScheduleShape& shape) {
  const std::vector<int64_t> depths = warmup_depths(shape);
  const auto ahead = [&](size_t s) { return (depths[s] - 1) * shape.replicas[s]; };
  std::vector<double> delays;
  for (size_t s = 0; s < depths.size(); ++s) {
    const plan::VersionDelays delay =
        traits(shape.policy)
            .delays({.step = shape.accumulate, .ahead = ahead(s), .ahead_at_input = ahead(0)});
    delays.push_back(static_cast<double>(delay.forward) / static_cast<double>(shape.accumulate));
  }
  return delays;
}

}  // namespace penstock::schedule
