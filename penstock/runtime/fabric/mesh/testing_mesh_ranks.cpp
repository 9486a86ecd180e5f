#include "penstock/runtime/fabric/mesh/testing_mesh_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "penstock/launch/free_port.h"
#include "penstock/launch/job_environment.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"
#include "penstock/util/check.h"

namespace penstock::runtime::testing {

namespace {

/// Connects the ranks, and calls set_up(hub) on each before its world is made.
template <class SetUp>
std::vector<std::unique_ptr<World>> make_ranks(const std::vector<int>& rank_of_worker,
                                               net::MeshOptions options, int servers,
                                               const std::vector<int>& host_of_rank, SetUp set_up,
                                               std::vector<at::Device> device_of_worker = {}) {
  options.ranks = 1 + *std::max_element(rank_of_worker.begin(), rank_of_worker.end()) + servers;
  options.port = static_cast<uint16_t>(launch::free_port());
  std::vector<std::unique_ptr<World>> worlds(static_cast<size_t>(options.ranks));
  std::vector<std::jthread> ranks;
  for (int r = 0; r < options.ranks; ++r) {
    ranks.emplace_back([&worlds, &rank_of_worker, &host_of_rank, &device_of_worker, options,
                        servers, set_up, r]() mutable {
      options.rank = r;
      auto hub = make_mesh_hub(net::Mesh::connect(options));
      set_up(*hub);
      worlds[static_cast<size_t>(r)] =
          make_mesh_world(std::move(hub), rank_of_worker, servers, host_of_rank, device_of_worker);
    });
  }
  ranks.clear();
  return worlds;
}

}  // namespace

std::vector<std::unique_ptr<World>> make_mesh_ranks(const std::vector<int>& rank_of_worker,
                                                    net::MeshOptions options, int servers,
                                                    const std::vector<int>& host_of_rank) {
  return make_ranks(rank_of_worker, options, servers, host_of_rank, [](MeshHub&) {});
}

std::vector<std::unique_ptr<World>> make_gloo_ranks(const std::vector<int>& rank_of_worker) {
  return make_ranks(rank_of_worker, {}, 0, {},
                    [](MeshHub& hub) { carry_by_gloo(hub, /*smallest=*/1); });
}

std::vector<std::unique_ptr<World>> make_nccl_ranks(
    const std::vector<int>& rank_of_worker, const std::vector<at::Device>& device_of_worker) {
  return make_ranks(
      rank_of_worker, {}, 0, {}, [](MeshHub& hub) { link_by_nccl(hub); }, device_of_worker);
}

namespace {

// Set by the build where it has the module.
#ifndef PENSTOCK_MPI_MODULE
#define PENSTOCK_MPI_MODULE ""
#endif

/// MPI can be started once in the life of a process.
class MpiHub : public ::testing::Environment {
 public:
  const std::shared_ptr<MeshHub>& get() {
    if (hub_) return hub_;
    const auto job = launch::own_job();
    hub_ = make_mesh_hub(net::Mesh::connect({.rank = job->rank,
                                             .ranks = job->ranks,
                                             .address = job->address,
                                             .port = static_cast<uint16_t>(job->port)}));
    carry_by_mpi(*hub_, PENSTOCK_MPI_MODULE, /*smallest=*/1);
    return hub_;
  }
  void TearDown() override {
    if (!hub_) return;
    EXPECT_GT(hub_->mesh().traffic().sent_by_carrier, 0);
    hub_.reset();
  }

 private:
  std::shared_ptr<MeshHub> hub_;
};

MpiHub& mpi_hub() {
  // GoogleTest owns it.
  static auto* const hub = std::make_unique<MpiHub>().release();
  static const auto* const added = ::testing::AddGlobalTestEnvironment(hub);
  PENSTOCK_CHECK(added == hub);
  return *hub;
}

}  // namespace

bool is_mpi_rank() {
  if (*PENSTOCK_MPI_MODULE == '\0' || std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return false;
  const auto job = launch::own_job();
  if (!job || job->ranks < 2) return false;
  mpi_hub();
  return true;
}

std::vector<std::unique_ptr<World>> make_mpi_ranks(const std::vector<int>& rank_of_worker) {
  const std::shared_ptr<MeshHub>& hub = mpi_hub().get();
  const int training = 1 + *std::max_element(rank_of_worker.begin(), rank_of_worker.end());
  std::vector<std::unique_ptr<World>> own;
  own.push_back(make_mesh_world(hub, rank_of_worker, launch::own_job()->ranks - training));
  return own;
}

}  // namespace penstock::runtime::testing
