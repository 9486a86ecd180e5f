#include "tools/penstock/job_carrier.h"

#include <fmt/format.h>

#include <iostream>
#include <string>

#include "penstock/runtime/fabric/c10d/gloo.h"
#include "penstock/runtime/fabric/mesh/mesh_world.h"
#include "penstock/runtime/fabric/mpi/mpi_carrier.h"
#include "penstock/runtime/fabric/nccl/nccl_links.h"
#include "penstock/util/error.h"

namespace penstock::tool {

void check_fabric(FabricChoice fabric, const launch::JobEnvironment* job) {
  const bool is_rank = job != nullptr && job->ranks > 1;
  if (fabric == FabricChoice::Local && is_rank) {
    throw ConfigError(
        fmt::format("--fabric local: all workers are threads of one process, and this one is rank "
                    "{} of a job of {} ({})",
                    job->rank, job->ranks, job->launcher));
  }
  const bool is_carrier = fabric == FabricChoice::Gloo || fabric == FabricChoice::Mpi;
  if (fabric == FabricChoice::Gloo && !runtime::has_gloo())
    throw ConfigError("--fabric gloo: this penstock was built without Gloo");
  if (fabric == FabricChoice::Nccl && !runtime::has_nccl()) {
    throw ConfigError(
        "--fabric nccl: this penstock was built without NCCL, which takes a libtorch for CUDA");
  }
  if (!is_rank && (is_carrier || fabric == FabricChoice::Nccl || fabric == FabricChoice::Tcp)) {
    std::cerr << fmt::format(
        "warning: --fabric {} has no effect: this process is not a rank of a job of several\n",
        to_string(fabric));
    return;
  }
  if (!is_carrier) return;
  if (fabric == FabricChoice::Mpi) {
    const std::string obstacle = runtime::mpi_obstacle(runtime::mpi_module_beside_program());
    if (!obstacle.empty()) throw ConfigError("--fabric mpi: " + obstacle);
  }
}

void start_carrier(runtime::MeshHub& hub, FabricChoice fabric) {
  if (fabric == FabricChoice::Gloo) runtime::carry_by_gloo(hub);
  if (fabric == FabricChoice::Mpi) runtime::carry_by_mpi(hub, runtime::mpi_module_beside_program());
  if (fabric == FabricChoice::Nccl) runtime::link_by_nccl(hub);
}

}  // namespace penstock::tool
