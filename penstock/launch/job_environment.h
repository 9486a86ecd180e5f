// What a launcher told this process about the job that it is a rank of: variables in its
// environment. Pure functions of those variables; thread-safe if `variable` is.
//
//   const auto job = job_environment([](const char* name) { return std::getenv(name); });
//   if (job) connect(job->address, job->port, job->rank, job->ranks);
#pragma once

#include <optional>
#include <string>

#include "penstock/launch/environment_variables.h"

namespace penstock::launch {

/// Where rank 0 listens when the launcher names no port (mpirun, srun).
inline constexpr int kDefaultPort = 29511;

struct JobEnvironment {
  int rank = 0;             ///< 0 .. ranks - 1
  int ranks = 1;            ///< 1 .. kMaxJobRanks
  int local_rank = 0;       ///< among the ranks on this machine, 0 .. local_ranks - 1
  int local_ranks = 1;      ///< ranks on this machine, at most `ranks`
  std::string address;      ///< name or address of rank 0's machine
  int port = kDefaultPort;  ///< where rank 0 listens, 1 .. 65535
  std::string token;        ///< what ranks of the same job know; a secret, may be empty
  /// How connections between the ranks are encrypted (net/tls_choice.h); empty: nobody has said.
  std::string tls = {};
  int restart = 0;  ///< how often the job was started again
  int servers = 0;  ///< ranks, the last ones, that only add gradients; fewer than `ranks`
  /// A pipe that `penstock launch` closes when a rank has failed; -1: none.
  int failure_pipe = -1;
  std::string launcher;  ///< "torchrun", "mpirun", "srun", "penstock launch", ...
  /// The variables by which this process is a rank, where they may be left over; for messages.
  std::string reason = {};
  /// A warning that variables of another launcher give another rank or number of ranks; empty: none
  /// do, or a launcher has started another one that has started this process.
  std::string doubt = {};

  friend bool operator==(const JobEnvironment&, const JobEnvironment&) = default;
};

/// The job, or nothing when no launcher's variables are there: of the table in launchers.cpp, the
/// first row that applies. Launchers come before those that may have started them: torchrun before
/// mpirun, mpirun before srun. Where a launcher does not say what is on which machine, each rank
/// counts as alone on its own, and a job of several needs MASTER_ADDR.
///
/// A process is a task of srun's only with SLURM_NTASKS above 1 and the SLURM_STEP_ID of an
/// ordinary step: the shell of a batch script or of an interactive allocation is no rank.
///
/// RANK and WORLD_SIZE that neither torchrun nor `penstock launch` has set (TORCHELASTIC_RUN_ID,
/// PENSTOCK_RESTART) and that differ from another launcher's are in doubt: most likely they are
/// left over. One that mpirun or srun has started may have started ranks itself, several per
/// machine.
///
/// The port is PENSTOCK_LISTEN, or the launcher's, or kDefaultPort where it has none. With
/// TORCHELASTIC_USE_AGENT_STORE=True torchrun itself listens on MASTER_PORT, so the port is
/// MASTER_PORT + 1, and from 32768 on, 10000 + MASTER_PORT % 20000. No variable of ours has a name
/// that Kubernetes sets for a Service. PENSTOCK_JOB_TOKEN is the token, PENSTOCK_TLS says how
/// connections are encrypted, PENSTOCK_RESTART (torchrun: TORCHELASTIC_RESTART_COUNT) the restart,
/// PENSTOCK_SERVERS the number of servers, and PENSTOCK_FAILURE_PIPE the number of an open file
/// descriptor. Throws ConfigError naming the variable, what was found and what was expected; never
/// with the token's text.
std::optional<JobEnvironment> job_environment(const Variable& variable);
/// That of this process's own variables.
std::optional<JobEnvironment> own_job();

}  // namespace penstock::launch
