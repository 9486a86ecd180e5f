// MPI as a carrier. The library is loaded when it is asked for: programs that do without it do not
// need it and start no slower. penstock-mpi.so (mpi_module.cpp) alone knows it.
//
//   mesh.carry_by(make_mpi_carrier("/usr/libexec/penstock/penstock-mpi.so", 0, 4), smallest);
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "penstock/net/carrier.h"

namespace penstock::runtime {

/// The module's file beside the running program.
std::filesystem::path mpi_module_beside_program();

/// Why MPI cannot carry messages in this process, empty if nothing is known: there is no module (it
/// was built without), or no launcher of MPI (mpirun, srun with PMI) has started the process.
std::string mpi_obstacle(const std::filesystem::path& module);

/// All ranks call it together, once in the life of a process; blocks until all have. Throws
/// ConfigError for an obstacle, when MPI does not start, and when its rank and number of ranks are
/// not these.
std::unique_ptr<net::Carrier> make_mpi_carrier(const std::filesystem::path& module, int rank,
                                               int ranks);

}  // namespace penstock::runtime
