#include "penstock/runtime/fabric/mesh/mesh_teams.h"

#include <ATen/Functions.h>

#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/schedule/team_places.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// Before messages between stages and gradients: whole teams wait for it.
constexpr int kTeamUrgency = 2;

/// Where a signature and the tensor behind it go, made when their first bytes come. One of another
/// size has another signature.
net::Place place_of(const std::shared_ptr<model::Tensors>& parts, const TensorLayout& expected) {
  return [parts, expected](const std::vector<uint64_t>& sizes) {
    if (sizes.size() != 2 || sizes[0] != sizeof(uint64_t) || sizes[1] == net::kAbsent)
      throw TransportError("sent something to a member of a team that is no signed tensor");
    at::Tensor tensor = at::empty(expected.sizes, at::TensorOptions(expected.type));
    if (tensor.nbytes() != sizes[1])
      tensor = at::empty({static_cast<int64_t>(sizes[1])}, at::kByte);
    *parts = {at::empty({1}, at::kLong), std::move(tensor)};
    return std::vector<net::Memory>{memory_of(parts->front()), memory_of(parts->back())};
  };
}

at::Tensor as_tensor(uint64_t signature) {
  return at::full({1}, static_cast<int64_t>(signature), at::kLong);
}

}  // namespace

MeshTeams::Team::Team(uint32_t channel, std::vector<int> ranks)
    : first_channel(channel),
      rank_of_member(std::move(ranks)),
      here(static_cast<int>(rank_of_member.size())),
      posted(size(), std::vector<Posted>(size())) {}

MeshTeams::MeshTeams(net::Mesh& mesh, uint32_t run, uint32_t first_channel, const Site& site,
                     const schedule::ScheduleShape& shape)
    : mesh_(mesh), run_(run), rank_(site.rank) {
  const schedule::WorkerTable table(shape);
  const schedule::TeamPlaces places(shape.teams);
  for (int32_t s = 0; s < shape.num_stages(); ++s) {
    const schedule::TeamPlace place = places.of(StageId{s});
    if (place.size == 1 || place.member > 0) continue;
    for (int r = 0; r < table.replicas(StageId{s}); ++r) {
      std::vector<int> ranks;
      for (int m = 0; m < place.size; ++m)
        ranks.push_back(site.rank_of_worker[table.worker_of_replica(StageId{s + m}, r).index()]);
      teams_[{place.first, r}] =
          std::make_unique<Team>(first_channel + channels_, std::move(ranks));
      channels_ += static_cast<uint32_t>(place.size * place.size);
    }
  }
}

void MeshTeams::close() {
  for (const auto& [place, team] : teams_) team->here.close();
}

MeshTeams::Team& MeshTeams::team(const TeamExchange& exchange) const {
  const auto found = teams_.find({exchange.first, exchange.replica});
  PENSTOCK_CHECK(found != teams_.end(), "stage", exchange.first, "has no team");
  return *found->second;
}

net::Tag MeshTeams::tag(const Team& team, int64_t number, int from, int to) const {
  const auto pair =
      static_cast<uint32_t>(from) * static_cast<uint32_t>(team.size()) + static_cast<uint32_t>(to);
  return {run_, team.first_channel + pair, static_cast<uint64_t>(number)};
}

void MeshTeams::start_exchange(const TeamExchange& exchange, model::Tensors parts,
                               const std::vector<TensorLayout>& expected) {
  Team& members = team(exchange);
  for (size_t m = 0; m < parts.size(); ++m) {
    const auto other = static_cast<int>(m);
    if (other == exchange.member) continue;
    if (members.is_here(other, rank_)) {
      members.here.give(exchange, other, std::move(parts[m]));
      continue;
    }
    const int peer = members.rank_of_member[m];
    Posted& posted = members.posted[static_cast<size_t>(exchange.member)][m];
    posted.parts = std::make_shared<model::Tensors>();
    posted.transfer = mesh_.receive(peer, tag(members, exchange.number, other, exchange.member),
                                    place_of(posted.parts, expected[m]));
    const uint64_t signature =
        signature_of(exchange, {.sizes = parts[m].sizes().vec(), .type = parts[m].scalar_type()});
    OutgoingTensors out({as_tensor(signature), std::move(parts[m])});
    mesh_.send(peer, tag(members, exchange.number, exchange.member, other), out.parts(), out.keep(),
               kTeamUrgency);
  }
}

WaitResult MeshTeams::finish_exchange(const TeamExchange& exchange, int from,
                                      const TensorLayout& expected, at::Tensor& part, Wait& wait) {
  Team& members = team(exchange);
  if (members.is_here(from, rank_)) return members.here.take(exchange, from, expected, part, wait);
  Posted& posted = members.posted[static_cast<size_t>(exchange.member)][static_cast<size_t>(from)];
  {
    const Stopwatch stopwatch(wait);
    const WaitResult result = result_of(posted.transfer->wait(wait.deadline));
    if (result != WaitResult::Ready) return result;
  }
  check_given(exchange, from, expected,
              static_cast<uint64_t>(posted.parts->front().item<int64_t>()));
  part = std::move(posted.parts->back());
  posted = {};
  return WaitResult::Ready;
}

}  // namespace penstock::runtime
