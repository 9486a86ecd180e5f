#include "penstock/runtime/fabric/mesh/hierarchical_sum.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "penstock/runtime/fabric/mesh/wire_numbers.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

int machine_of(const Machines& machines, int rank) {
  for (size_t m = 0; m < machines.ranks.size(); ++m) {
    const std::vector<int>& ranks = machines.ranks[m];
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return static_cast<int>(m);
  }
  return -1;
}

/// By replica: its number among those of the same machine as `rank`; -1: on another one.
std::vector<int> local_numbers(const StageSumSetup& setup, const Machines& machines) {
  const int own = machine_of(machines, setup.mesh.rank());
  std::vector<int> numbers;
  int next = 0;
  for (const int rank : setup.rank_of_replica)
    numbers.push_back(own >= 0 && machine_of(machines, rank) == own ? next++ : -1);
  return numbers;
}

/// The same sum with the replicas of this rank's machine only.
StageSumSetup inside(StageSumSetup setup, const Machines& machines) {
  const std::vector<int> numbers = local_numbers(setup, machines);
  std::vector<int> ranks;
  for (size_t r = 0; r < numbers.size(); ++r) {
    if (numbers[r] >= 0) ranks.push_back(setup.rank_of_replica[r]);
  }
  setup.rank_of_replica = std::move(ranks);
  setup.rank_of_server.clear();
  return setup;
}

/// The gatherer of a shard in this rank's machine; nobody on a server.
MeshSum::RankOfOwner gatherer_here(const StageSumSetup& setup, const Machines& machines) {
  const int own = machine_of(machines, setup.mesh.rank());
  return [machines, own](const Shard&, size_t shard) {
    return own < 0 ? -1 : machines.gatherer(static_cast<size_t>(own), shard);
  };
}

}  // namespace

Machines machines_of(const std::vector<int>& rank_of_replica,
                     const std::vector<int>& host_of_rank) {
  Machines machines;
  std::map<int, size_t> machine_of_host;
  std::set<int> seen;
  for (const int rank : rank_of_replica) {
    if (!seen.insert(rank).second) continue;
    const int host = host_of_rank[static_cast<size_t>(rank)];
    const auto [found, added] = machine_of_host.try_emplace(host, machines.ranks.size());
    if (added) machines.ranks.emplace_back();
    machines.ranks[found->second].push_back(rank);
  }
  return machines;
}

HierarchicalSum::HierarchicalSum(StageSumSetup setup, Machines machines,
                                 const std::vector<double>& shares)
    : MeshSum(inside(setup, machines), shares, gatherer_here(setup, machines)),
      machines_(std::move(machines)),
      own_(machine_of(machines_, setup.mesh.rank())),
      local_of_(local_numbers(setup, machines_)),
      server_ranks_(std::move(setup.rank_of_server)),
      joining_channel_(setup.first_channel + StageSum::channels(local_of_.size())) {
  const size_t owners = machines_.ranks.size() + server_ranks_.size();
  PENSTOCK_CHECK(shares.size() == owners, shares.size(), owners);
  shares_of_phases_ = {0.5, 0.5};  // MeshSum has counted what moves inside the machine only
  joined_.resize(shards_.size());
  for (Joined& joined : joined_) {
    joined.contributions.resize(machines_.ranks.size());
    joined.missing = num_machines();
  }
}

int HierarchicalSum::rank_of_joiner(size_t shard) const {
  const size_t owner = shards_[shard].owner;
  const size_t machines = machines_.ranks.size();
  return owner < machines ? machines_.gatherer(owner, shard) : server_ranks_[owner - machines];
}

net::Tag HierarchicalSum::joining_tag(Phase phase, int machine, size_t shard,
                                      uint64_t round) const {
  net::Tag tag = this->tag(phase, 0, shard, round);
  tag.channel = joining_channel_ + 2 * static_cast<uint32_t>(machine) + phase;
  return tag;
}

void HierarchicalSum::begin() {
  MeshSum::begin();
  for (size_t s = 0; s < shards_.size(); ++s) {
    for (int machine = 0; joins(s) && machine < num_machines(); ++machine)
      post_part_of(machine, s, 0);
  }
}

void HierarchicalSum::start(int replica, size_t bucket, Partials partials) {
  MeshSum::start(local_of_[static_cast<size_t>(replica)], bucket, std::move(partials));
}

WaitResult HierarchicalSum::finish(int replica, size_t bucket, BucketSum& sum, Wait& wait) {
  return MeshSum::finish(local_of_[static_cast<size_t>(replica)], bucket, sum, wait);
}

// ---- gatherers

void HierarchicalSum::added(size_t shard, uint64_t round, model::Tensors sums) {
  Contribution part{.groups = {own_}, .slices = sums};
  if (joins(shard)) {
    join(own_, shard, std::move(part));
    return;
  }
  // The sum comes back into the memory of the part, which the joiner has before it answers; in 16
  // bits into memory of its own.
  if (is_short(setup_.precision)) sums.assign(sums.size(), at::Tensor());
  const auto parts = std::make_shared<model::Tensors>();
  const int joiner = rank_of_joiner(shard);
  const auto transfer = setup_.mesh.receive(
      joiner, joining_tag(Results, own_, shard, round),
      place_of_sums(shards_[shard].ranges, std::move(sums), parts, setup_.precision));
  when_received(*transfer, [this, shard, round, parts] { give_results(shard, round, *parts); });
  send_part(joiner, joining_tag(Adding, own_, shard, round), std::move(part));
}

// ---- joiners

void HierarchicalSum::post_part_of(int machine, size_t shard, uint64_t round) {
  if (gathers(machine, shard)) return;
  const RawMessage message =
      post_raw(setup_.mesh, machines_.gatherer(static_cast<size_t>(machine), shard),
               joining_tag(Adding, machine, shard, round));
  when_received(*message.transfer, [this, machine, shard, parts = message.parts] {
    try {
      join(machine, shard, part_in({.parts = parts, .transfer = nullptr}, shard));
    } catch (...) {
      fail(std::current_exception());
    }
  });
}

void HierarchicalSum::join(int machine, size_t shard, Contribution contribution) {
  MutexLock lock(mutex_);
  Joined& joined = joined_[shard];
  joined.contributions[static_cast<size_t>(machine)] = std::move(contribution);
  if (--joined.missing > 0) return;
  add_later(shard, [this, shard] { join_up(shard); });
}

void HierarchicalSum::join_up(size_t shard) {
  const at::NoGradGuard no_grad;
  std::vector<Contribution> contributions(machines_.ranks.size());
  uint64_t round = 0;
  {
    MutexLock lock(mutex_);
    Joined& joined = joined_[shard];
    contributions.swap(joined.contributions);
    joined.missing = num_machines();
    round = joined.round++;
  }
  const model::Tensors sums =
      narrowed(sum_of_shard(shards_[shard], std::move(contributions)), setup_.precision);
  for (int machine = 0; machine < num_machines(); ++machine)
    post_part_of(machine, shard, round + 1);
  for (int i = 1; i <= num_machines(); ++i) {
    const int machine = (i + own_ + num_machines()) % num_machines();
    if (gathers(machine, shard))
      give_results(shard, round, sums);
    else
      send_later(Results, machines_.gatherer(static_cast<size_t>(machine), shard),
                 joining_tag(Results, machine, shard, round), sums);
  }
}

}  // namespace penstock::runtime
