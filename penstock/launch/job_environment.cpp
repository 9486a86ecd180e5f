#include "penstock/launch/job_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "penstock/launch/slurm_lists.h"
#include "penstock/launch/whole_number.h"
#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::launch {

namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr int64_t kMostPort = 65535;
constexpr int64_t kMostRestarts = 1'000'000;
constexpr size_t kMostAddressBytes = 253;
/// As many as a rank's hello holds (net/hello.cpp).
constexpr size_t kMostTokenBytes = 64;
// From here up a SLURM_STEP_ID is no step of srun's but the batch script, an interactive shell or
// whatever else Slurm starts by itself.
constexpr int64_t kFirstSpecialStep = 0xffff'fff0;

/// The variables, with errors that name them.
class Variables {
 public:
  explicit Variables(const Variable& variable) : variable_(variable) {}

  bool has(const char* name) const { return variable_(name) != nullptr; }

  std::string text(const char* name) const {
    const char* value = variable_(name);
    return value == nullptr ? "" : value;
  }

  /// The number; an error if the variable is missing or its value not in least .. most.
  int64_t number(const char* name, int64_t least, int64_t most) const {
    return number(name, least, most, fmt::format("a whole number from {} to {}", least, most));
  }

  /// A number below the value of the variable `count`.
  int64_t index(const char* name, const char* count, int64_t of) const {
    return number(name, 0, of - 1,
                  fmt::format("a whole number from 0 to {} ({}={})", of - 1, count, of));
  }

  [[noreturn]] void missing(const char* name, std::string_view because) const {
    throw ConfigError(fmt::format("environment variable {} is missing: {}", name, because));
  }

 private:
  int64_t number(const char* name, int64_t least, int64_t most, const std::string& expected) const {
    if (!has(name)) missing(name, "expected " + expected);
    const std::string found = text(name);
    const auto value = whole_number(found);
    if (!value || *value < least || *value > most)
      throw ConfigError(fmt::format("environment variable {}: expected {}, found {}", name,
                                    expected, in_quotes(found)));
    return *value;
  }

  const Variable& variable_;
};

/// `found`, the value of the variable `name`, if it may be a machine's name or address.
std::string checked_address(const char* name, std::string found) {
  const bool printable = std::all_of(found.begin(), found.end(), [](char c) {
    return c > ' ' && c <= '~';  // no space
  });
  if (found.empty() || found.size() > kMostAddressBytes || !printable)
    throw ConfigError(
        fmt::format("environment variable {}: expected the name or address of rank 0's machine, "
                    "found {}",
                    name, in_quotes(found)));
  return found;
}

std::string address(const Variables& variables) {
  return checked_address("MASTER_ADDR", variables.text("MASTER_ADDR"));
}

/// PENSTOCK_PORT, or MASTER_PORT, or the default.
int port(const Variables& variables) {
  for (const char* name : {"PENSTOCK_PORT", "MASTER_PORT"}) {
    if (variables.has(name)) return static_cast<int>(variables.number(name, 1, kMostPort));
  }
  return kDefaultPort;
}

/// `rank` of `ranks`, `local_rank` of `local_ranks` by the variables of these names.
void read_ranks(const Variables& variables, JobEnvironment& job, const char* rank,
                const char* ranks) {
  job.ranks = static_cast<int>(variables.number(ranks, 1, kMaxJobRanks));
  job.rank = static_cast<int>(variables.index(rank, ranks, job.ranks));
}

void read_local_ranks(const Variables& variables, JobEnvironment& job, const char* rank,
                      const char* ranks) {
  job.local_ranks = static_cast<int>(variables.number(ranks, 1, job.ranks));
  job.local_rank = static_cast<int>(variables.index(rank, ranks, job.local_ranks));
}

/// The port for `penstock launch` and torchrun, which bring a MASTER_PORT.
int port_beside_agent(const Variables& variables) {
  const bool agent_listens = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (variables.has("PENSTOCK_PORT") || !agent_listens || !variables.has("MASTER_PORT"))
    return port(variables);
  // torchrun's own store listens on MASTER_PORT itself; the next one must be a port, too.
  return 1 + static_cast<int>(variables.number("MASTER_PORT", 1, kMostPort - 1));
}

void read_restart(const Variables& variables, JobEnvironment& job, const char* name) {
  if (variables.has(name)) job.restart = static_cast<int>(variables.number(name, 0, kMostRestarts));
}

/// Whether another launcher's variables of these names, for several ranks, say otherwise; the
/// warning, or nothing.
std::string contradiction(const Variables& variables, const JobEnvironment& job, const char* rank,
                          const char* ranks, const char* launcher) {
  const auto its_rank = whole_number(variables.text(rank));
  const auto its_ranks = whole_number(variables.text(ranks));
  if (!its_rank || !its_ranks || *its_ranks < 2) return {};
  if (*its_rank == job.rank && *its_ranks == job.ranks) return {};
  return fmt::format(
      "RANK={} and WORLD_SIZE={} make this process rank {} of {}; {}={} and {}={} of {} say "
      "otherwise and are ignored: unset those that are not this job's",
      job.rank, job.ranks, job.rank, job.ranks, rank, *its_rank, ranks, *its_ranks, launcher);
}

std::string doubt_about(const Variables& variables, const JobEnvironment& job) {
  // Those are set for each rank anew; what stands beside them started their launcher.
  if (variables.has("PENSTOCK_RESTART") || variables.has("TORCHELASTIC_RUN_ID")) return {};
  std::string doubt =
      contradiction(variables, job, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun");
  const auto step = whole_number(variables.text("SLURM_STEP_ID"));
  if (doubt.empty() && step && *step < kFirstSpecialStep)
    doubt = contradiction(variables, job, "SLURM_PROCID", "SLURM_NTASKS", "srun");
  return doubt;
}

JobEnvironment from_torchrun(const Variables& variables) {
  JobEnvironment job;
  const bool ours = variables.has("PENSTOCK_RESTART") && !variables.has("TORCHELASTIC_RUN_ID");
  job.launcher = ours ? "penstock launch" : "torchrun";
  read_ranks(variables, job, "RANK", "WORLD_SIZE");
  if (variables.has("LOCAL_RANK") || variables.has("LOCAL_WORLD_SIZE"))
    read_local_ranks(variables, job, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  job.doubt = doubt_about(variables, job);
  const std::string left_over = job.doubt.empty() ? "" : "; " + job.doubt;
  if (variables.has("MASTER_ADDR") || job.ranks > 1) {
    if (!variables.has("MASTER_ADDR"))
      variables.missing("MASTER_ADDR",
                        "expected the name or address of rank 0's machine" + left_over);
    job.address = address(variables);
  } else {
    job.address = kLoopback;
  }
  if (job.ranks > 1 && !variables.has("MASTER_PORT") && !variables.has("PENSTOCK_PORT"))
    variables.missing("MASTER_PORT", "expected the port on which rank 0 is to listen" + left_over);
  job.port = port_beside_agent(variables);
  read_restart(variables, job, "TORCHELASTIC_RESTART_COUNT");
  return job;
}

JobEnvironment from_mpirun(const Variables& variables) {
  JobEnvironment job;
  job.launcher = "mpirun";
  read_ranks(variables, job, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  read_local_ranks(variables, job, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (variables.has("MASTER_ADDR")) {
    job.address = address(variables);
  } else if (job.local_ranks == job.ranks) {
    job.address = kLoopback;
  } else {
    variables.missing("MASTER_ADDR",
                      fmt::format("mpirun put {} of the {} ranks on this machine, and the others "
                                  "need the address of rank 0: start it with -x MASTER_ADDR=...",
                                  job.local_ranks, job.ranks));
  }
  job.port = port(variables);
  return job;
}

/// Ranks on this machine.
int slurm_local_ranks(const Variables& variables, int ranks) {
  constexpr const char* kList = "SLURM_STEP_TASKS_PER_NODE";
  constexpr const char* kNodes = "SLURM_STEP_NUM_NODES";
  if (!variables.has(kList)) {
    if (!variables.has(kNodes) || variables.number(kNodes, 1, kMaxJobRanks) == 1) return ranks;
    variables.missing(kList, "expected how many tasks each machine has, such as '2(x3),1'");
  }
  const std::string list = variables.text(kList);
  const int64_t node =
      variables.has("SLURM_NODEID") ? variables.number("SLURM_NODEID", 0, kMaxJobRanks) : 0;
  const auto tasks = tasks_on_node(list, node);
  if (!tasks || *tasks < 1 || *tasks > ranks)
    throw ConfigError(fmt::format(
        "environment variable {}: expected how many of the {} tasks each machine has, such as "
        "'2(x3),1', with machine {} among them (SLURM_NODEID), found {}",
        kList, ranks, node, in_quotes(list)));
  return static_cast<int>(*tasks);
}

std::string slurm_address(const Variables& variables, const JobEnvironment& job) {
  if (variables.has("MASTER_ADDR")) return address(variables);
  if (job.local_ranks == job.ranks) return kLoopback;
  // Task 0 runs on the first machine of the step. SLURM_LAUNCH_NODE_IPADDR is where srun was
  // called, often a login node, so it comes last.
  if (variables.has("SLURM_STEP_NODELIST")) {
    const std::string list = variables.text("SLURM_STEP_NODELIST");
    if (const auto host = first_host(list)) return checked_address("SLURM_STEP_NODELIST", *host);
    throw ConfigError(
        fmt::format("environment variable SLURM_STEP_NODELIST: expected machines "
                    "such as 'node[01-04],gpu7', found {}; MASTER_ADDR overrides it",
                    in_quotes(list)));
  }
  constexpr const char* kLaunchNode = "SLURM_LAUNCH_NODE_IPADDR";
  if (variables.has(kLaunchNode)) return checked_address(kLaunchNode, variables.text(kLaunchNode));
  variables.missing("MASTER_ADDR", "expected the name or address of rank 0's machine");
}

/// Whether srun started this process as one of several. A batch script has the variables of its
/// allocation but is no task of a step, and Slurm gives what it starts by itself special steps.
bool is_slurm_task(const Variables& variables) {
  const auto tasks = whole_number(variables.text("SLURM_NTASKS"));
  const bool several = variables.has("SLURM_NTASKS") && tasks != 0 && tasks != 1;
  if (!several || !variables.has("SLURM_STEP_ID")) return false;
  return variables.number("SLURM_STEP_ID", 0, INT64_MAX) < kFirstSpecialStep;
}

JobEnvironment from_srun(const Variables& variables) {
  JobEnvironment job;
  job.launcher = "srun";
  read_ranks(variables, job, "SLURM_PROCID", "SLURM_NTASKS");
  job.local_ranks = slurm_local_ranks(variables, job.ranks);
  job.local_rank =
      static_cast<int>(variables.index("SLURM_LOCALID", "tasks on this machine", job.local_ranks));
  job.address = slurm_address(variables, job);
  job.port = port(variables);
  return job;
}

std::optional<JobEnvironment> from_launcher(const Variables& variables) {
  if (variables.has("RANK") || variables.has("WORLD_SIZE")) return from_torchrun(variables);
  if (variables.has("OMPI_COMM_WORLD_RANK") || variables.has("OMPI_COMM_WORLD_SIZE"))
    return from_mpirun(variables);
  if (is_slurm_task(variables)) return from_srun(variables);
  return std::nullopt;
}

}  // namespace

std::optional<JobEnvironment> job_environment(const Variable& variable) {
  const Variables variables(variable);
  std::optional<JobEnvironment> job = from_launcher(variables);
  if (!job) return std::nullopt;
  read_restart(variables, *job, "PENSTOCK_RESTART");
  if (variables.has("PENSTOCK_SERVERS"))
    job->servers = static_cast<int>(variables.number("PENSTOCK_SERVERS", 0, job->ranks - 1));
  if (variables.has("PENSTOCK_FAILURE_PIPE"))
    job->failure_pipe = static_cast<int>(variables.number("PENSTOCK_FAILURE_PIPE", 0, INT32_MAX));
  job->token = variables.text("PENSTOCK_JOB_TOKEN");
  if (job->token.size() > kMostTokenBytes)
    throw ConfigError(
        fmt::format("environment variable PENSTOCK_JOB_TOKEN: expected at most {} bytes, found {}",
                    kMostTokenBytes, job->token.size()));
  return job;
}

std::optional<JobEnvironment> own_job() {
  return job_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace penstock::launch
