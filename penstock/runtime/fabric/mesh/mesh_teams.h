// What the members of a team give each other: in memory where both are on this rank
// (local_team.h), over the mesh otherwise. Each member posts the receives of an exchange when it
// starts it, so what the others give moves straight into its place.
//
// Bytes on the wire: those of the tensors, and 8 per message that say what they are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/local/local_team.h"

namespace penstock::runtime {

/// Thread-safe.
class MeshTeams : public Teams {
 public:
  /// Uses channels() of the run's channels, from `first_channel` on.
  MeshTeams(net::Mesh& mesh, uint32_t run, uint32_t first_channel, const Site& site,
            const schedule::ScheduleShape& shape);

  uint32_t channels() const { return channels_; }
  /// Wakes who waits for a member of this rank; the mesh wakes the others (Mesh::close_run).
  void close();

  void start_exchange(const TeamExchange& exchange, model::Tensors parts,
                      const std::vector<TensorLayout>& expected) override;
  WaitResult finish_exchange(const TeamExchange& exchange, int from, const TensorLayout& expected,
                             at::Tensor& part, Wait& wait) override;

 private:
  /// What a member has been promised by another one.
  struct Posted {
    std::shared_ptr<model::Tensors> parts;  ///< signature, tensor
    std::shared_ptr<net::Transfer> transfer;
  };
  struct Team {
    Team(uint32_t channel, std::vector<int> ranks);

    const uint32_t first_channel;
    const std::vector<int> rank_of_member;
    LocalTeam here;
    /// By who takes, which writes and reads its own, and who gives.
    std::vector<std::vector<Posted>> posted;

    size_t size() const { return rank_of_member.size(); }
    bool is_here(int member, int rank) const {
      return rank_of_member[static_cast<size_t>(member)] == rank;
    }
  };
  Team& team(const TeamExchange& exchange) const;
  net::Tag tag(const Team& team, int64_t number, int from, int to) const;

  net::Mesh& mesh_;
  uint32_t run_;
  int rank_;
  uint32_t channels_ = 0;
  std::map<std::pair<StageId, int>, std::unique_ptr<Team>> teams_;  ///< by first, replica
};

}  // namespace penstock::runtime
