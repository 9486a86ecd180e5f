#include "penstock/runtime/fabric/mesh/mesh_sum.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/mesh/wire_numbers.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// Replicas, then servers.
std::vector<int> ranks_of_owners(const StageSumSetup& setup, size_t shares) {
  std::vector<int> ranks = setup.rank_of_replica;
  ranks.insert(ranks.end(), setup.rank_of_server.begin(), setup.rank_of_server.end());
  PENSTOCK_CHECK(shares == ranks.size(), shares, ranks.size());
  return ranks;
}

}  // namespace

MeshSum::MeshSum(StageSumSetup setup, const std::vector<double>& shares)
    : MeshSum(setup, shares,
              [ranks = ranks_of_owners(setup, shares.size())](const Shard& shard, size_t) {
                return ranks[shard.owner];
              }) {}

MeshSum::MeshSum(StageSumSetup setup, const std::vector<double>& shares,
                 const RankOfOwner& rank_of_owner)
    : StageSum(std::move(setup), shares) {
  for (size_t s = 0; s < shards_.size(); ++s)
    rank_of_owner_.push_back(rank_of_owner(shards_[s], s));
  shares_of_phases_ = shares_of_phases();
  owned_.resize(shards_.size());
  for (Owned& owned : owned_) {
    owned.contributions.resize(static_cast<size_t>(replicas()));
    owned.missing = replicas();
  }
}

std::array<double, 2> MeshSum::shares_of_phases() const {
  std::array<double, 2> numbers{};
  for (size_t s = 0; s < shards_.size(); ++s) {
    int64_t length = 0;
    for (const ShardRange& range : shards_[s].ranges) length += range.length;
    for (int replica = 0; replica < replicas(); ++replica) {
      if (owns(s) == setup_.is_here(replica)) continue;
      numbers[owns(s) ? Results : Adding] += static_cast<double>(length);
    }
  }
  const double both = numbers[0] + numbers[1];
  if (both == 0) return {0.5, 0.5};
  // Where there are none of a phase, its share does not matter.
  for (double& number : numbers) number = std::max(number / both, 1e-3);
  return numbers;
}

void MeshSum::fail(std::exception_ptr failure) {
  setup_.service->add(INT_MAX, [failure = std::move(failure)] { std::rethrow_exception(failure); });
}

// ---- owners

void MeshSum::begin() {
  for (size_t s = 0; s < shards_.size(); ++s) {
    for (int replica = 0; owns(s) && replica < replicas(); ++replica) post_part(replica, s, 0);
  }
}

void MeshSum::post_part(int replica, size_t shard, uint64_t round) {
  if (setup_.is_here(replica)) return;
  const RawMessage message =
      post_raw(setup_.mesh, rank_of(replica), tag(Adding, replica, shard, round));
  when_received(*message.transfer, [this, replica, shard, parts = message.parts] {
    on_part(replica, shard, {.parts = parts, .transfer = nullptr});
  });
}

void MeshSum::give_result(int replica, size_t shard, uint64_t round, const model::Tensors& sums) {
  if (setup_.is_here(replica))
    results_.put(replica, shard, sums);
  else
    send_later(Results, rank_of(replica), tag(Results, replica, shard, round), sums);
}

MeshSum::Contribution MeshSum::part_in(const RawMessage& message, size_t shard) const {
  Contribution contribution;
  net::WireReader head(message.head());
  contribution.groups = head.list<int64_t>();
  const std::vector<ShardRange>& ranges = shards_[shard].ranges;
  for (size_t i = 0; i < contribution.groups.size() * ranges.size(); ++i) {
    const at::Tensor part = message.tensor(i, scalar_type(setup_.precision));
    const int64_t expected = ranges[i % ranges.size()].length;
    if (part.defined() && part.numel() != expected) {
      throw TransportError(
          fmt::format("the replicas of a stage have gradients of different shapes: expected {} "
                      "numbers, found {}",
                      expected, part.numel()));
    }
    contribution.slices.push_back(part);
  }
  return contribution;
}

void MeshSum::on_part(int replica, size_t shard, const RawMessage& message) {
  try {
    contribute(replica, shard, part_in(message, shard));
  } catch (...) {
    fail(std::current_exception());
  }
}

void MeshSum::contribute(int replica, size_t shard, Contribution contribution) {
  MutexLock lock(mutex_);
  Owned& owned = owned_[shard];
  owned.contributions[static_cast<size_t>(replica)] = std::move(contribution);
  if (--owned.missing > 0) return;
  add_later(shard, [this, shard] { add_up(shard); });
}

model::Tensors MeshSum::sum_of_shard(const Shard& shard,
                                     std::vector<Contribution> contributions) const {
  struct Place {
    int64_t group;
    const Contribution* contribution;
    size_t first;  ///< of its slices
  };
  std::vector<Place> order;
  const size_t count = shard.ranges.size();
  for (const Contribution& contribution : contributions) {
    for (size_t g = 0; g < contribution.groups.size(); ++g)
      order.push_back({contribution.groups[g], &contribution, g * count});
  }
  std::sort(order.begin(), order.end(),
            [](const Place& a, const Place& b) { return a.group < b.group; });
  model::Tensors sums(count);
  for (size_t i = 0; i < count; ++i) {
    // The first one lends its memory: nobody else needs it any more.
    for (const Place& place : order)
      add_part(sums[i], place.contribution->slices[place.first + i], setup_.precision);
  }
  return sums;
}

void MeshSum::add_up(size_t number) {
  const at::NoGradGuard no_grad;
  const Shard& shard = shards_[number];
  std::vector<Contribution> contributions(static_cast<size_t>(replicas()));
  uint64_t round = 0;
  {
    MutexLock lock(mutex_);
    Owned& owned = owned_[number];
    contributions.swap(owned.contributions);
    owned.missing = replicas();
    round = owned.round++;
  }
  added(number, round, sum_of_shard(shard, std::move(contributions)));
}

void MeshSum::added(size_t shard, uint64_t round, model::Tensors sums) {
  give_results(shard, round, narrowed(sums, setup_.precision));
}

void MeshSum::give_results(size_t shard, uint64_t round, const model::Tensors& sums) {
  for (int replica = 0; replica < replicas(); ++replica) post_part(replica, shard, round + 1);
  const auto owner = static_cast<int>(shards_[shard].owner);
  if (setup_.own_shards_only) return give_result(owner, shard, round, sums);
  for (int i = 0; i < replicas(); ++i) {
    const int replica = (i + owner + 1) % replicas();
    give_result(replica, shard, round, sums);
  }
}

// ---- replicas

MeshSum::Contribution MeshSum::contribution_of(size_t shard, const Partials& partials) const {
  Contribution contribution;
  for (const GroupGradients& group : partials) {
    contribution.groups.push_back(group.group);
    model::Tensors slices = results_.slices(shard, group.sums);
    std::move(slices.begin(), slices.end(), std::back_inserter(contribution.slices));
  }
  return contribution;
}

void MeshSum::send_part(int peer, net::Tag tag, Contribution contribution) {
  const int urgency = urgency_of(tag);
  contribution.slices = narrowed(contribution.slices, setup_.precision);
  const int64_t bytes = bytes_of_all(contribution.slices);
  const auto groups = static_cast<double>(std::max<size_t>(contribution.groups.size(), 1));
  send_in_turn(
      Adding, tag, bytes,
      [&mesh = setup_.mesh, peer, tag, urgency, contribution = std::move(contribution)]() mutable {
        net::WireWriter head;
        head.list(contribution.groups);
        return send_raw(mesh, peer, tag, head.take(), std::move(contribution.slices), urgency);
      },
      groups);
}

void MeshSum::post_result(int replica, size_t shard, uint64_t round) {
  auto parts = std::make_shared<model::Tensors>();
  const auto transfer =
      setup_.mesh.receive(rank_of_owner(shard), tag(Results, replica, shard, round),
                          results_.place(replica, shard, parts));
  when_received(*transfer, [this, replica, shard, parts] { results_.put(replica, shard, *parts); });
}

void MeshSum::start(int replica, size_t bucket, Partials partials) {
  const at::NoGradGuard no_grad;
  // The first group that has a gradient lends its memory for the sum: what another rank owns has
  // reached it before its result comes back.
  const auto round = results_.begin(replica, bucket, first_gradients(partials, weights_of(bucket)));
  if (!round) return;
  for (const size_t s : results_.shards_of(bucket)) {
    if (!owns(s) && !setup_.own_shards_only) post_result(replica, s, *round);
  }
  // Each replica begins with another owner: nobody is sent everything at once.
  const std::vector<size_t>& shards = results_.shards_of(bucket);
  for (size_t i = 0; i < shards.size(); ++i) {
    const size_t s = shards[(i + static_cast<size_t>(replica) + 1) % shards.size()];
    Contribution contribution = contribution_of(s, partials);
    if (owns(s))
      contribute(replica, s, std::move(contribution));
    else
      send_part(rank_of_owner(s), tag(Adding, replica, s, *round), std::move(contribution));
  }
}

}  // namespace penstock::runtime
