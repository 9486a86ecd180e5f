// The fabrics that a job of several ranks may choose, a row each: what stands in a fabric's way,
// and what starts it.
//
//   const FabricRow& row = fabric_row(net::FabricKind::Gloo);
//   if (const std::string why = row.obstacle({.rank = 1, .ranks = 4}); !why.empty()) ...
//   auto hub = make_mesh_hub(net::Mesh::connect({..., .same_host_memory = row.same_host_memory}));
//   row.start(*hub);                       // on all ranks
//
// A fabric that carries something past the mesh's connections has a function here as well, for
// those who choose more than the row does.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "penstock/net/fabric_kind.h"

namespace penstock::runtime {

class MeshHub;

/// Which rank a process is, of which job.
struct RankInJob {
  int rank = 0;
  int ranks = 1;              ///< 1: no job of several
  std::string launcher = {};  ///< who started it
};

struct FabricRow {
  net::FabricKind kind = net::FabricKind::Auto;
  bool only_between_ranks = true;  ///< it changes nothing in a process that is no rank of several
  bool same_host_memory = false;   ///< net::MeshOptions::same_host_memory
  bool past_connections = false;   ///< what goes between hosts goes past the mesh's connections
  /// What can be said against it before the ranks meet; empty: nothing.
  std::string (*obstacle)(const RankInJob& job) = nullptr;
  /// Starts what carries messages past the connections, if anything does. Collective, between
  /// runs. Throws ConfigError, TransportError.
  void (*start)(MeshHub& hub) = nullptr;
};

const FabricRow& fabric_row(net::FabricKind kind);

/// Bytes of the smallest part of a message for which a carrier is worth its steps.
inline constexpr size_t kSmallestCarried = 64 << 10;

/// The payload of large messages goes by Gloo from now on. Collective, between runs: blocks until
/// all ranks are connected. Throws as make_gloo_carrier() (fabric/c10d/gloo.h).
void carry_by_gloo(MeshHub& hub, size_t smallest = kSmallestCarried);
/// The same by MPI; `module` is the file of mpi/mpi_module.cpp. Throws as make_mpi_carrier()
/// (fabric/mpi/mpi_carrier.h).
void carry_by_mpi(MeshHub& hub, const std::filesystem::path& module,
                  size_t smallest = kSmallestCarried);
/// Tensors between GPUs of different ranks go by NCCL from now on, past the memory of the hosts;
/// every worker must have a GPU. All ranks call it, or none, between runs. Throws as
/// make_nccl_links() (fabric/nccl/nccl_links.h).
void link_by_nccl(MeshHub& hub);

}  // namespace penstock::runtime
