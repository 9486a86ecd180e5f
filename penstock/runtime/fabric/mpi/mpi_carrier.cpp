#include "penstock/runtime/fabric/mpi/mpi_carrier.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "penstock/runtime/fabric/mpi/mpi_module.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

/// What mpirun, srun and other launchers tell the processes of an MPI job.
bool is_started_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

}  // namespace

std::filesystem::path mpi_module_beside_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path() / kMpiModule;
}

std::string mpi_obstacle(const std::filesystem::path& module) {
  std::error_code ignored;
  if (!std::filesystem::exists(module, ignored)) {
    return fmt::format("this penstock was built without MPI: there is no {} (libopenmpi-dev)",
                       module.string());
  }
  if (!is_started_by_mpi()) {
    return "the ranks were not started by a launcher of MPI: start them with mpirun, or with srun "
           "and its PMIx";
  }
  return {};
}

std::unique_ptr<net::Carrier> make_mpi_carrier(const std::filesystem::path& module, int rank,
                                               int ranks) {
  if (const std::string obstacle = mpi_obstacle(module); !obstacle.empty())
    throw ConfigError(obstacle);
  // Global: Open MPI loads parts that look for its symbols. Never closed: MPI stays until the end.
  void* const library = dlopen(module.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw ConfigError(fmt::format("cannot load MPI: {}", dlerror()));
  const auto make = reinterpret_cast<MakeMpiCarrier>(dlsym(library, kMakeMpiCarrier));
  if (make == nullptr)
    throw ConfigError(fmt::format("{} is of another version of penstock", module.string()));
  std::string error;
  std::unique_ptr<net::Carrier> carrier = make(rank, ranks, error);
  if (!carrier) throw ConfigError(error);
  return carrier;
}

}  // namespace penstock::runtime
