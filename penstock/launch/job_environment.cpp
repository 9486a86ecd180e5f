#include "penstock/launch/job_environment.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "penstock/launch/environment_variables.h"
#include "penstock/launch/launchers.h"
#include "penstock/launch/slurm_step.h"
#include "penstock/launch/whole_number.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::launch {

namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr int64_t kMostPort = 65535;
/// From here on, Linux hands ports out to connections.
constexpr int kFirstEphemeralPort = 32768;
constexpr int64_t kMostRestarts = 1'000'000;
/// As many as a rank's hello holds (net/hello.cpp).
constexpr size_t kMostTokenBytes = 64;

void read_ranks(const Variables& variables, const Launcher& row, JobEnvironment& job) {
  if (row.ranks == nullptr)
    throw ConfigError(fmt::format(
        "environment variable {}={}: {} has started this process and does not say how many there "
        "are; give each RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset {} for a process "
        "alone",
        row.rank, printable(variables.text(row.rank)), row.name, row.rank));
  job.ranks = static_cast<int>(variables.number(row.ranks, 1, kMaxJobRanks));
  job.rank = static_cast<int>(variables.index(row.rank, row.ranks, job.ranks));
}

void read_local_ranks(const Variables& variables, const Launcher& row, JobEnvironment& job) {
  std::string_view count = "tasks on this machine";
  if (row.count_local != nullptr) {
    job.local_ranks = row.count_local(variables, job.ranks);
  } else if (row.machines != nullptr) {
    const int64_t machines = variables.number(row.machines, 1, kMaxJobRanks);
    job.local_ranks = static_cast<int>((job.ranks + machines - 1) / machines);
  } else if (variables.has(row.local_ranks) || variables.has(row.local_rank) ||
             (row.local_ranks != nullptr && !row.brings_address)) {
    count = row.local_ranks;
    job.local_ranks = static_cast<int>(variables.number(row.local_ranks, 1, job.ranks));
  } else {
    return;  // one per machine, for all that is known
  }
  job.local_rank = static_cast<int>(variables.index(row.local_rank, count, job.local_ranks));
}

std::string address(const Variables& variables, const Launcher& row, const JobEnvironment& job,
                    const std::string& left_over) {
  if (variables.has(row.address)) return variables.address(row.address);
  if (row.brings_address && job.ranks > 1)
    variables.missing(row.address, "expected the name or address of rank 0's machine" + left_over);
  if (job.local_ranks == job.ranks) return kLoopback;
  if (row.find_address != nullptr) return row.find_address(variables);
  const std::string where =
      row.local_rank == nullptr
          ? fmt::format("{} does not say which ranks are on this machine", row.name)
          : fmt::format("{} put {} of the {} ranks on this machine", row.name, job.local_ranks,
                        job.ranks);
  variables.missing(row.address,
                    fmt::format("{}, and the others need the address of rank 0: start it with {}",
                                where, row.passes));
}

/// The ranks' own port beside torchrun's store, the same for every rank. With --standalone the
/// store takes a free port, and the next one is often a connection's: there, a port that no
/// connection has.
int beside_store(int store) {
  return store + 1 < kFirstEphemeralPort ? store + 1 : 10'000 + store % 20'000;
}

/// PENSTOCK_LISTEN, or the launcher's, or the default.
int port(const Variables& variables, const Launcher& row, const JobEnvironment& job,
         const std::string& left_over) {
  if (variables.has("PENSTOCK_PORT") && !variables.is_of_service("PENSTOCK_PORT"))
    throw ConfigError(
        "environment variable PENSTOCK_PORT: the port has the name PENSTOCK_LISTEN, because "
        "Kubernetes sets PENSTOCK_PORT for a Service that is called penstock");
  if (variables.has("PENSTOCK_LISTEN"))
    return static_cast<int>(variables.number("PENSTOCK_LISTEN", 1, kMostPort));
  const bool is_there = variables.has(row.port);
  if (row.brings_address && job.ranks > 1 && !is_there)
    variables.missing(row.port, "expected the port on which rank 0 is to listen" + left_over);
  if (!is_there || (!row.brings_address && variables.is_of_service(row.port))) return kDefaultPort;
  const int named = static_cast<int>(variables.number(row.port, 1, kMostPort));
  const bool is_of_store =
      row.brings_address && variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return is_of_store ? beside_store(named) : named;
}

void read_restart(const Variables& variables, JobEnvironment& job, const char* name) {
  if (variables.has(name)) job.restart = static_cast<int>(variables.number(name, 0, kMostRestarts));
}

/// Whether another launcher's variables, for several ranks, say otherwise; the warning, or nothing.
std::string contradiction(const Variables& variables, const JobEnvironment& job,
                          const Launcher& row, const Launcher& other) {
  const auto its_rank = whole_number(variables.text(other.rank));
  const auto its_ranks = whole_number(variables.text(other.ranks));
  if (!its_rank || !its_ranks || *its_ranks < 2) return {};
  if (*its_rank == job.rank && *its_ranks == job.ranks) return {};
  return fmt::format(
      "{} make this process rank {} of {}; {} of {} say otherwise and are ignored: unset those "
      "that are not this job's",
      told_by(row, variables), job.rank, job.ranks, told_by(other, variables), other.name);
}

/// What stands beside a launcher that marks its ranks has started it. A batch system starts one
/// process of another launcher per machine.
std::string doubt_about(const Variables& variables, const JobEnvironment& job,
                        const Launcher& row) {
  if (row.level == Level::Marked) return {};
  for (const Launcher& other : launchers()) {
    const bool has_started = other.level == Level::BatchSystem && row.level != Level::Operator;
    if (other.rank == row.rank || has_started || !applies(other, variables)) continue;
    if (std::string doubt = contradiction(variables, job, row, other); !doubt.empty()) return doubt;
  }
  return row.doubt == nullptr ? std::string() : row.doubt(variables);
}

/// Why this process takes itself for a rank, where that may be a mistake.
std::string reason_of(const Variables& variables, const Launcher& row) {
  if (row.level == Level::Marked) return {};
  const bool in_shell = row.find_address == slurm_address && variables.has("SLURM_PTY_PORT");
  return fmt::format("{} of {}{}", told_by(row, variables), row.name,
                     in_shell ? ", which a shell that it has started has, too" : "");
}

JobEnvironment from_row(const Variables& variables, const Launcher& row) {
  JobEnvironment job;
  job.launcher = row.name;
  read_ranks(variables, row, job);
  read_local_ranks(variables, row, job);
  job.doubt = doubt_about(variables, job, row);
  job.reason = reason_of(variables, row);
  const std::string left_over = job.doubt.empty() ? "" : "; " + job.doubt;
  job.address = address(variables, row, job, left_over);
  job.port = port(variables, row, job, left_over);
  if (row.level == Level::Marked || row.level == Level::Operator)
    read_restart(variables, job, "TORCHELASTIC_RESTART_COUNT");
  return job;
}

std::optional<JobEnvironment> from_launcher(const Variables& variables) {
  for (const Launcher& row : launchers()) {
    if (applies(row, variables)) return from_row(variables, row);
  }
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
  job->tls = variables.text("PENSTOCK_TLS");
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
