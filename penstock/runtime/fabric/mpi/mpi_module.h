// What penstock-mpi.so exports. Built together with the program that loads it: they share
// net::Carrier and nothing else. Internal to fabric/mpi.
#pragma once

#include <string>

#include "penstock/net/carrier.h"

namespace penstock::runtime {

inline constexpr const char* kMpiModule = "penstock-mpi.so";
inline constexpr const char* kMakeMpiCarrier = "penstock_make_mpi_carrier";

/// Starts MPI, with a thread that alone calls it. A null pointer, and the reason, when MPI does not
/// start or its ranks are not these.
using MakeMpiCarrier = std::unique_ptr<net::Carrier> (*)(int rank, int ranks, std::string& error);

}  // namespace penstock::runtime
