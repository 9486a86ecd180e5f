// What --fabric asks for, in a process that may be a rank of a job.
#pragma once

#include "penstock/launch/job_environment.h"
#include "penstock/net/mesh.h"
#include "tools/penstock/fabric_choice.h"

namespace penstock::runtime {
class MeshHub;
}

namespace penstock::tool {

/// What can be said before the ranks meet; `job` is null in a process that is no rank. Throws
/// ConfigError for a fabric that this build or this job cannot have; warns where it has no use.
void check_fabric(FabricChoice fabric, const launch::JobEnvironment* job);

/// Starts what carries messages past the connections, if anything does. All ranks call it together.
/// Throws ConfigError, TransportError.
void start_carrier(runtime::MeshHub& hub, FabricChoice fabric);

}  // namespace penstock::tool
