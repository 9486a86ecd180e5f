#include "penstock/launch/launchers.h"

#include <fmt/format.h>

#include <array>

#include "penstock/launch/slurm_step.h"
#include "penstock/launch/whole_number.h"
#include "penstock/util/text/printable.h"

namespace penstock::launch {

namespace {

bool is_not_torchrun(const Variables& variables) { return !variables.has("TORCHELASTIC_RUN_ID"); }

/// DeepSpeed's own launcher has no LOCAL_WORLD_SIZE.
bool is_not_torchs(const Variables& variables) { return !variables.has("LOCAL_WORLD_SIZE"); }

/// One process in each pod of several; a pod alone is no job.
bool is_one_of_pods(const Variables& variables) { return variables.text("PET_NNODES") != "1"; }

std::string not_by_torchrun(const Variables& variables) {
  const auto processes = whole_number(variables.text("PET_NPROC_PER_NODE"));
  if (processes.value_or(1) == 1) return {};
  return fmt::format(
      "PET_NPROC_PER_NODE={} has no effect: torchrun, which reads it, has not started this "
      "process, "
      "so there is one rank per pod; let torchrun start it",
      *processes);
}

constexpr Launcher torch_variables(std::string_view name, Level level, const char* mark) {
  return {.name = name,
          .level = level,
          .rank = "RANK",
          .ranks = "WORLD_SIZE",
          .local_rank = "LOCAL_RANK",
          .local_ranks = "LOCAL_WORLD_SIZE",
          .mark = mark,
          .brings_address = true};
}

constexpr Launcher own_launcher() {
  Launcher row = torch_variables("penstock launch", Level::Marked, "PENSTOCK_RESTART");
  row.is_rank = is_not_torchrun;
  return row;
}

constexpr Launcher deepspeed() {
  Launcher row = torch_variables("deepspeed", Level::Operator, "LOCAL_SIZE");
  row.local_ranks = "LOCAL_SIZE";
  row.is_rank = is_not_torchs;
  return row;
}

/// Launchers that speak PMI differ in how they name what is on this machine.
constexpr Launcher pmi(std::string_view name, const char* local_rank, const char* local_ranks) {
  return {.name = name,
          .rank = "PMI_RANK",
          .ranks = "PMI_SIZE",
          .local_rank = local_rank,
          .local_ranks = local_ranks,
          .mark = local_rank,
          .passes = "-genv MASTER_ADDR ..."};
}

constexpr Launcher pals() {
  Launcher row = pmi("mpiexec (PALS)", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE");
  row.level = Level::BatchSystem;
  row.mark = "PALS_RANKID";
  row.passes = "--env MASTER_ADDR=...";  // tidy: allow(options) of PALS
  return row;
}

constexpr std::array kLaunchers = {
    own_launcher(),
    torch_variables("torchrun", Level::Marked, "TORCHELASTIC_RUN_ID"),
    deepspeed(),
    torch_variables("torchrun", Level::Operator, nullptr),
    Launcher{.name = "jsrun",
             .level = Level::BatchSystem,
             .rank = "JSM_NAMESPACE_RANK",
             .ranks = "JSM_NAMESPACE_SIZE",
             .local_rank = "JSM_NAMESPACE_LOCAL_RANK",
             .local_ranks = "JSM_NAMESPACE_LOCAL_SIZE",
             .passes = "-E MASTER_ADDR=..."},
    Launcher{.name = "mpirun",
             .rank = "OMPI_COMM_WORLD_RANK",
             .ranks = "OMPI_COMM_WORLD_SIZE",
             .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
             .local_ranks = "OMPI_COMM_WORLD_LOCAL_SIZE",
             .passes = "-x MASTER_ADDR=..."},
    Launcher{.name = "mpirun_rsh",
             .rank = "MV2_COMM_WORLD_RANK",
             .ranks = "MV2_COMM_WORLD_SIZE",
             .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
             .local_ranks = "MV2_COMM_WORLD_LOCAL_SIZE",
             .passes = "MASTER_ADDR=... before the command"},
    pmi("mpiexec", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Launcher{.name = "flux run",
             .level = Level::BatchSystem,
             .rank = "FLUX_TASK_RANK",
             .ranks = "FLUX_JOB_SIZE",
             .local_rank = "FLUX_TASK_LOCAL_ID",
             .machines = "FLUX_JOB_NNODES",
             .passes = "--env=MASTER_ADDR=..."},  // tidy: allow(options) of flux
    pals(),
    // Before those without a count of their own: srun sets PMI_RANK or PMIX_RANK, too.
    Launcher{.name = "srun",
             .level = Level::BatchSystem,
             .rank = "SLURM_PROCID",
             .ranks = "SLURM_NTASKS",
             .local_rank = "SLURM_LOCALID",
             .is_rank = is_slurm_task,
             .count_local = slurm_local_ranks,
             .find_address = slurm_address},
    pmi("mpiexec", nullptr, nullptr),
    Launcher{.name = "a launcher of PMIx", .rank = "PMIX_RANK", .mark = "PMIX_RANK"},
    Launcher{.name = "Kubeflow Trainer",
             .rank = "PET_NODE_RANK",
             .ranks = "PET_NNODES",
             .address = "PET_MASTER_ADDR",
             .port = "PET_MASTER_PORT",
             .brings_address = true,
             .is_rank = is_one_of_pods,
             .doubt = not_by_torchrun},
};

std::string told(const Variables& variables, const char* name) {
  return variables.has(name) ? fmt::format("{}={}", name, printable(variables.text(name)))
                             : fmt::format("no {}", name);
}

}  // namespace

std::span<const Launcher> launchers() { return kLaunchers; }

bool applies(const Launcher& row, const Variables& variables) {
  if (row.mark != nullptr && !variables.has(row.mark)) return false;
  if (!variables.has(row.rank) && !variables.has(row.ranks)) return false;
  return row.is_rank == nullptr || row.is_rank(variables);
}

std::string told_by(const Launcher& row, const Variables& variables) {
  const std::string rank = told(variables, row.rank);
  return row.ranks == nullptr ? rank : rank + " and " + told(variables, row.ranks);
}

}  // namespace penstock::launch
