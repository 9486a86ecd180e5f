#include "penstock/schedule/teams.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {
namespace {

/// One entry per member of one entry per stage; empty stays empty.
template <class T>
std::vector<T> per_member(const std::vector<T>& per_stage, const std::vector<int>& teams) {
  std::vector<T> all;
  for (size_t s = 0; s < per_stage.size(); ++s)
    all.insert(all.end(), static_cast<size_t>(teams[s]), per_stage[s]);
  return all;
}

template <class T>
std::vector<T> per_team(const std::vector<T>& per_member, const std::vector<int>& teams) {
  std::vector<T> all;
  size_t next = 0;
  for (const int size : teams) {
    if (next < per_member.size()) all.push_back(per_member[next]);
    next += static_cast<size_t>(size);
  }
  return all;
}

bool is_whole(const std::vector<int>& teams) {
  return std::all_of(teams.begin(), teams.end(), [](int size) { return size == 1; });
}

/// Before anything grows with the members.
void check_members(const std::vector<int>& replicas, const std::vector<int>& teams) {
  int64_t members = 0;
  for (size_t s = 0; s < teams.size(); ++s)
    members = saturating_add(
        members, saturating_mul(s < replicas.size() ? replicas[s] : 1, std::max(teams[s], 1)));
  if (members <= kMaxWorkers) return;
  throw ConfigError(fmt::format("teams of at most {} workers together are supported, found {}",
                                kMaxWorkers, members));
}

/// By worker of the whole shape, the worker of its first member; and behind the last one.
std::vector<int> first_workers(const ScheduleShape& whole, const std::vector<int>& teams) {
  const WorkerTable table(whole);
  std::vector<int> first{0};
  for (int32_t w = 0; w < table.num_workers(); ++w) {
    const auto held = table.held_by(WorkerId{w});
    const int size = teams[held.front().stage.index()];
    for (const WorkerTable::Held& other : held) {
      if (teams[other.stage.index()] == size) continue;
      throw ConfigError(fmt::format(
          "worker {} holds stages {} and {}, whose teams have {} and {} members: expected as many",
          w, held.front().stage.value, other.stage.value, size, teams[other.stage.index()]));
    }
    first.push_back(first.back() + size);
  }
  return first;
}

/// ScheduleShape::worker_of_replica of the members.
std::vector<int> workers_of_members(const ScheduleShape& whole, const std::vector<int>& teams,
                                    const std::vector<int>& first) {
  const WorkerTable table(whole);
  std::vector<int> workers;
  for (int32_t s = 0; s < whole.num_stages(); ++s) {
    for (int m = 0; m < teams[static_cast<size_t>(s)]; ++m) {
      for (int r = 0; r < table.replicas(StageId{s}); ++r)
        workers.push_back(first[table.worker_of_replica(StageId{s}, r).index()] + m);
    }
  }
  return workers;
}

std::vector<int32_t> first_stages(const std::vector<int>& teams) {
  std::vector<int32_t> first{0};
  for (const int size : teams) first.push_back(first.back() + size);
  return first;
}

}  // namespace

TeamPlace place_in_team(const ScheduleShape& shape, StageId stage) {
  if (shape.teams.empty()) return {.whole = stage, .first = stage};
  int32_t first = 0;
  size_t whole = 0;
  while (first + shape.teams[whole] <= stage.value) first += shape.teams[whole++];
  return {.whole = StageId{static_cast<int32_t>(whole)},
          .first = StageId{first},
          .member = stage.value - first,
          .size = shape.teams[whole]};
}

ScheduleShape with_teams(const ScheduleShape& whole, const std::vector<int>& teams) {
  if (is_whole(teams)) return whole;
  if (teams.size() != whole.replicas.size()) {
    throw ConfigError(fmt::format("there are teams of {} stages, the schedule has {}", teams.size(),
                                  whole.replicas.size()));
  }
  check_members(whole.replicas, teams);
  const std::vector<int> first = first_workers(whole, teams);
  ScheduleShape shape = whole;
  shape.teams = teams;
  shape.replicas = per_member(whole.replicas, teams);
  shape.worker_of_replica = workers_of_members(whole, teams, first);
  shape.recompute = per_member(whole.recompute, teams);
  shape.offload = per_member(whole.offload, teams);
  shape.keep = per_member(whole.keep, teams);
  shape.costs = per_member(whole.costs, teams);
  for (std::vector<int32_t>& units : shape.link_units) {
    std::vector<int32_t> all;
    for (size_t w = 0; w < units.size(); ++w)
      all.insert(all.end(), static_cast<size_t>(first[w + 1] - first[w]), units[w]);
    units = std::move(all);
  }
  return shape;
}

ScheduleShape without_teams(const ScheduleShape& shape) {
  if (shape.teams.empty()) return shape;
  ScheduleShape whole = shape;
  whole.teams.clear();
  whole.replicas = per_team(shape.replicas, shape.teams);
  whole.recompute = per_team(shape.recompute, shape.teams);
  whole.offload = per_team(shape.offload, shape.teams);
  whole.keep = per_team(shape.keep, shape.teams);
  whole.costs = per_team(shape.costs, shape.teams);
  whole.worker_of_replica.clear();
  if (shape.worker_of_replica.empty()) return whole;
  // Member 0's workers, numbered without gaps.
  const std::vector<int32_t> first = first_stages(shape.teams);
  const WorkerTable table(shape);
  std::vector<int> workers;
  for (size_t t = 0; t < shape.teams.size(); ++t) {
    for (int r = 0; r < whole.replicas[t]; ++r)
      workers.push_back(table.worker_of_replica(StageId{first[t]}, r).value);
  }
  std::vector<int> used = workers;
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (std::vector<int32_t>& units : whole.link_units) {
    std::vector<int32_t> first_members;
    for (const int worker : used) {
      if (static_cast<size_t>(worker) < units.size())
        first_members.push_back(units[static_cast<size_t>(worker)]);
    }
    units = std::move(first_members);
  }
  for (int& worker : workers)
    worker = static_cast<int>(std::lower_bound(used.begin(), used.end(), worker) - used.begin());
  whole.worker_of_replica = std::move(workers);
  return whole;
}

Schedule with_teams(const Schedule& compute, const std::vector<int>& teams) {
  if (is_whole(teams)) return compute;
  Schedule all{.kind = compute.kind, .shape = with_teams(compute.shape, teams)};
  const std::vector<int32_t> first = first_stages(teams);
  const WorkerTable table(compute.shape);
  for (int32_t w = 0; w < table.num_workers(); ++w) {
    const int size = teams[table.first_stage_of(WorkerId{w}).index()];
    for (int m = 0; m < size; ++m) {
      std::vector<Action>& list = all.workers.emplace_back(compute.workers[static_cast<size_t>(w)]);
      for (Action& action : list) {
        action.stage = StageId{first[action.stage.index()] + m};
        action.peer = StageId{first[action.peer.index()] + m};
      }
    }
  }
  return all;
}

std::vector<MemberLink> member_links(const std::vector<StageLink>& links,
                                     const std::vector<int>& teams) {
  check_members({}, teams);
  std::vector<MemberLink> all;
  const std::vector<int32_t> first = first_stages(teams);
  const auto size_of = [&](StageId stage) {
    if (teams.empty()) return 1;
    if (stage.value >= 0 && stage.index() < teams.size()) return teams[stage.index()];
    throw ConfigError(fmt::format("there is a link of stage {}, and teams of {} stages",
                                  stage.value, teams.size()));
  };
  const auto member = [&](StageId stage, int number) {
    return teams.empty() ? stage : StageId{first[stage.index()] + number};
  };
  for (size_t l = 0; l < links.size(); ++l) {
    const auto [from, to] = links[l];
    const int makers = size_of(from);
    const int readers = size_of(to);
    if (std::ssize(all) + std::max(makers, readers) > kMaxWorkers)
      throw ConfigError(fmt::format("more than {} links between members of teams", kMaxWorkers));
    for (int j = 0; j < std::max(makers, readers); ++j)
      all.push_back({l, {member(from, j % makers), member(to, j % readers)}});
  }
  return all;
}

std::vector<StageLink> links_of_members(const std::vector<StageLink>& links,
                                        const std::vector<int>& teams) {
  if (is_whole(teams)) return links;
  std::vector<StageLink> all;
  for (const MemberLink& each : member_links(links, teams)) all.push_back(each.link);
  return all;
}

}  // namespace penstock::schedule
