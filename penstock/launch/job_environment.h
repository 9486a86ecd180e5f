// What a launcher told this process about the job that it is a rank of: variables in its
// environment. Pure functions of those variables; thread-safe if `variable` is.
//
//   const auto job = job_environment([](const char* name) { return std::getenv(name); });
//   if (job) connect(job->address, job->port, job->rank, job->ranks);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace penstock::launch {

/// Ranks of the largest job that is taken for one.
inline constexpr int kMaxJobRanks = 1'000'000;
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
  int restart = 0;          ///< how often the job was started again
  int servers = 0;          ///< ranks, the last ones, that only add gradients; fewer than `ranks`
  /// A pipe that `penstock launch` closes when a rank has failed; -1: none.
  int failure_pipe = -1;
  std::string launcher;  ///< "torchrun", "mpirun", "srun" or "penstock launch"
  /// A warning that variables of another launcher give another rank or number of ranks; empty: none
  /// do, or a launcher has started another one that has started this process.
  std::string doubt = {};

  friend bool operator==(const JobEnvironment&, const JobEnvironment&) = default;
};

/// The value of an environment variable, or a null pointer; std::getenv is one.
using Variable = std::function<const char*(const char*)>;

/// The job, or nothing when no launcher's variables are there. In this order:
///
/// 1. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT: `penstock launch`,
///    torchrun and PyTorch's operators. The two LOCAL_ ones may be missing together: one rank per
///    machine. The other two may be missing in a job of one rank. With
///    TORCHELASTIC_USE_AGENT_STORE=True torchrun itself listens on MASTER_PORT, so the port is
///    MASTER_PORT + 1.
/// 2. OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (mpirun): one machine, or MASTER_ADDR.
/// 3. SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID (srun): only with SLURM_NTASKS above 1 and the
///    SLURM_STEP_ID of an ordinary step: the shell of a batch script or of an interactive
///    allocation is no rank. The address is MASTER_ADDR or the first machine of the step.
///
/// RANK and WORLD_SIZE that neither torchrun nor `penstock launch` has set (TORCHELASTIC_RUN_ID,
/// PENSTOCK_RESTART) and that differ from those of 2 or 3 are in doubt: most likely they are left
/// over. One that mpirun or srun has started may have started ranks itself, several per machine.
///
/// 2 and 3 take MASTER_PORT, or kDefaultPort. For all of them PENSTOCK_PORT overrides the port,
/// PENSTOCK_JOB_TOKEN is the token, PENSTOCK_RESTART (torchrun: TORCHELASTIC_RESTART_COUNT) the
/// restart, PENSTOCK_SERVERS the number of servers, and PENSTOCK_FAILURE_PIPE the number of an open
/// file descriptor. Throws ConfigError naming the variable, what was found and what was expected;
/// never with the token's text.
std::optional<JobEnvironment> job_environment(const Variable& variable);
/// That of this process's own variables.
std::optional<JobEnvironment> own_job();

}  // namespace penstock::launch
