// The ranks of a mesh as threads of one process, for tests, and as the processes of mpirun.
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/fabric/mesh/mesh_world.h"

namespace penstock::runtime::testing {

/// The worlds of all ranks, by rank, joined over the loopback; `servers` more without workers.
/// `host_of_rank`: as in Site.
std::vector<std::unique_ptr<World>> make_mesh_ranks(const std::vector<int>& rank_of_worker,
                                                    net::MeshOptions options = {}, int servers = 0,
                                                    const std::vector<int>& host_of_rank = {});

/// The same, with Gloo for all parts of messages but empty ones.
std::vector<std::unique_ptr<World>> make_gloo_ranks(const std::vector<int>& rank_of_worker);

/// The same on GPUs, between which messages go by NCCL; ranks must not share one.
std::vector<std::unique_ptr<World>> make_nccl_ranks(
    const std::vector<int>& rank_of_worker, const std::vector<at::Device>& device_of_worker);

/// Whether mpirun started this process as one of several ranks, and there is a module of MPI.
bool is_mpi_rank();

/// This process's world alone, with MPI for all parts of messages but empty ones. All processes
/// make the same worlds in the same order; those that have no worker are servers. MPI begins with
/// the first call and ends after the last test.
std::vector<std::unique_ptr<World>> make_mpi_ranks(const std::vector<int>& rank_of_worker);

}  // namespace penstock::runtime::testing
