// What srun tells the tasks of a step. Internal to launch.
//
//   if (is_slurm_task(variables)) local_ranks = slurm_local_ranks(variables, ranks);
#pragma once

#include <string>

#include "penstock/launch/environment_variables.h"

namespace penstock::launch {

/// Whether srun started this process as one of several. A batch script has the variables of its
/// allocation but is no task of a step, and Slurm gives what it starts by itself special steps.
bool is_slurm_task(const Variables& variables);

/// Tasks on this machine; throws ConfigError naming the variable.
int slurm_local_ranks(const Variables& variables, int ranks);

/// Rank 0's machine, when MASTER_ADDR does not name it and the step has several machines. Throws
/// ConfigError, also where Slurm does not say which of its machines that is.
std::string slurm_address(const Variables& variables);

}  // namespace penstock::launch
