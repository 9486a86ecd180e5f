// Times messages between two ranks that a launcher has started:
//
//   mpirun -n 2 carrier_bench {tcp|memory|gloo|mpi} BYTES...
//
// Prints a line per size (mesh_messages.h). benchmarks/carrier_bench.py compares them.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "benchmarks/mesh_messages.h"
#include "penstock/launch/job_environment.h"
#include "penstock/runtime/fabric/fabrics.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"
#include "penstock/runtime/fabric/mesh/mesh_world.h"

namespace {

using namespace penstock;

void run(const launch::JobEnvironment& job, std::string_view path,
         const std::vector<size_t>& sizes) {
  const auto hub =
      runtime::make_mesh_hub(net::Mesh::connect({.rank = job.rank,
                                                 .ranks = job.ranks,
                                                 .address = job.address,
                                                 .port = static_cast<uint16_t>(job.port),
                                                 .same_host_memory = path == "memory"}));
  if (path == "gloo") runtime::carry_by_gloo(*hub, 1);
  if (path == "mpi") runtime::carry_by_mpi(*hub, PENSTOCK_MPI_MODULE, 1);
  bench::Side side(hub->mesh());
  for (const size_t bytes : sizes) bench::measure(side, job.rank, bytes);
  const net::Traffic traffic = hub->mesh().traffic();
  if ((path == "gloo" || path == "mpi") && traffic.sent_by_carrier < traffic.sent / 2)
    throw std::runtime_error("most messages did not go by the carrier");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto job = launch::own_job();
    const std::string_view path = argc > 2 ? argv[1] : "";
    if (!job || job->ranks != 2 ||
        (path != "tcp" && path != "memory" && path != "gloo" && path != "mpi")) {
      std::fprintf(stderr, "usage: mpirun -n 2 carrier_bench {tcp|memory|gloo|mpi} BYTES...\n");
      return 2;
    }
    std::vector<size_t> sizes;
    for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    run(*job, path, sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "carrier_bench: %s\n", error.what());
    return 3;
  }
  return 0;
}
