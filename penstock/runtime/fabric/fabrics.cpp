#include "penstock/runtime/fabric/fabrics.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

#include "penstock/runtime/fabric/c10d/gloo.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"
#include "penstock/runtime/fabric/mpi/mpi_carrier.h"
#include "penstock/runtime/fabric/nccl/nccl_links.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

constexpr std::chrono::minutes kCarrierPatience{1};

std::string no_obstacle(const RankInJob&) { return {}; }
void start_nothing(MeshHub&) {}

std::string local_obstacle(const RankInJob& job) {
  if (job.ranks == 1) return {};
  return fmt::format(
      "all workers are threads of one process, and this one is rank {} of a job of {} ({})",
      job.rank, job.ranks, job.launcher);
}

std::string gloo_obstacle(const RankInJob&) {
  return has_gloo() ? "" : "this penstock was built without Gloo";
}

std::string nccl_obstacle(const RankInJob&) {
  return has_nccl() ? "" : "this penstock was built without NCCL, which takes a libtorch for CUDA";
}

std::string mpi_obstacle_of(const RankInJob& job) {
  return job.ranks == 1 ? "" : mpi_obstacle(mpi_module_beside_program());
}

/// In the order of net::FabricKind.
const std::array<FabricRow, 6> kFabrics{
    {{.kind = net::FabricKind::Auto,
      .only_between_ranks = false,
      .same_host_memory = true,
      .obstacle = no_obstacle,
      .start = start_nothing},
     {.kind = net::FabricKind::Local,
      .only_between_ranks = false,
      .obstacle = local_obstacle,
      .start = start_nothing},
     {.kind = net::FabricKind::Tcp, .obstacle = no_obstacle, .start = start_nothing},
     {.kind = net::FabricKind::Gloo,
      .past_connections = true,
      .obstacle = gloo_obstacle,
      .start = [](MeshHub& hub) { carry_by_gloo(hub); }},
     {.kind = net::FabricKind::Nccl,
      .same_host_memory = true,
      .past_connections = true,
      .obstacle = nccl_obstacle,
      .start = link_by_nccl},
     {.kind = net::FabricKind::Mpi,
      .past_connections = true,
      .obstacle = mpi_obstacle_of,
      .start = [](MeshHub& hub) { carry_by_mpi(hub, mpi_module_beside_program()); }}}};

}  // namespace

const FabricRow& fabric_row(net::FabricKind kind) {
  const FabricRow& row = kFabrics.at(static_cast<size_t>(kind));
  PENSTOCK_CHECK(row.kind == kind, "the rows are in another order");
  return row;
}

void carry_by_gloo(MeshHub& hub, size_t smallest) {
  const GlooSetup setup{
      .rank = hub.rank(),
      .ranks = hub.ranks(),
      .address = hub.mesh().own_address(),
      .put = [&hub](const std::string& key, const std::string& value) { hub.publish(key, value); },
      .get =
          [&hub](const std::string& key) {
            Wait wait = wait_for(kCarrierPatience);
            return hub.published(key, wait);
          }};
  if (hub.ranks() > 1) hub.mesh().carry_by(make_gloo_carrier(setup), smallest);
}

void carry_by_mpi(MeshHub& hub, const std::filesystem::path& module, size_t smallest) {
  if (hub.ranks() > 1)
    hub.mesh().carry_by(make_mpi_carrier(module, hub.rank(), hub.ranks()), smallest);
}

void link_by_nccl(MeshHub& hub) {
  hub.link_by(make_nccl_links(
      {.rank = hub.rank(),
       .put = [&hub](const std::string& name, const std::string& text) { hub.publish(name, text); },
       .get = [&hub](const std::string& name, Wait& wait) { return hub.published(name, wait); },
       .check = [&hub] { hub.check_ranks(); },
       .call = [&hub](int peer, const std::string& name) { hub.call(peer, name); },
       .listen = [&hub](const std::string& name,
                        std::function<void()> on_call) { hub.listen(name, std::move(on_call)); }}));
}

}  // namespace penstock::runtime
