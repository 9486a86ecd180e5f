#include "penstock/launch/slurm_step.h"

#include <fmt/format.h>

#include "penstock/launch/slurm_lists.h"
#include "penstock/launch/whole_number.h"
#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::launch {

namespace {

// From here up a SLURM_STEP_ID is no step of srun's but the batch script, an interactive shell or
// whatever else Slurm starts by itself.
constexpr int64_t kFirstSpecialStep = 0xffff'fff0;

/// Why task 0 need not be on the first machine of the step's list, whose order is Slurm's; empty:
/// it is.
std::string_view why_any_machine(const Variables& variables) {
  if (variables.text("SLURM_DISTRIBUTION").find("arbitrary") != std::string::npos)
    return "SLURM_DISTRIBUTION=arbitrary";
  if (variables.has("SLURM_HET_SIZE")) return "the job is heterogeneous (SLURM_HET_SIZE)";
  return {};
}

/// The place of this machine in the lists of the step. In a heterogeneous job SLURM_NODEID has
/// another order than they.
int64_t own_node(const Variables& variables) {
  const std::string name = variables.text("SLURMD_NODENAME");
  const auto listed = index_of_host(variables.text("SLURM_STEP_NODELIST"), name);
  if (listed) return *listed;
  return variables.has("SLURM_NODEID") ? variables.number("SLURM_NODEID", 0, kMaxJobRanks) : 0;
}

}  // namespace

bool is_slurm_task(const Variables& variables) {
  const auto tasks = whole_number(variables.text("SLURM_NTASKS"));
  const bool several = variables.has("SLURM_NTASKS") && tasks != 0 && tasks != 1;
  if (!several || !variables.has("SLURM_STEP_ID")) return false;
  return whole_number(variables.text("SLURM_STEP_ID")).value_or(0) < kFirstSpecialStep;
}

int slurm_local_ranks(const Variables& variables, int ranks) {
  constexpr const char* kList = "SLURM_STEP_TASKS_PER_NODE";
  constexpr const char* kNodes = "SLURM_STEP_NUM_NODES";
  variables.number("SLURM_STEP_ID", 0, INT64_MAX);
  if (!variables.has(kList)) {
    if (!variables.has(kNodes) || variables.number(kNodes, 1, kMaxJobRanks) == 1) return ranks;
    variables.missing(kList, "expected how many tasks each machine has, such as '2(x3),1'");
  }
  const std::string list = variables.text(kList);
  const int64_t node = own_node(variables);
  const auto tasks = tasks_on_node(list, node);
  if (!tasks || *tasks < 1 || *tasks > ranks)
    throw ConfigError(fmt::format(
        "environment variable {}: expected how many of the {} tasks each machine has, such as "
        "'2(x3),1', with machine {} among them (SLURMD_NODENAME, SLURM_NODEID), found {}",
        kList, ranks, node, in_quotes(list)));
  return static_cast<int>(*tasks);
}

std::string slurm_address(const Variables& variables) {
  constexpr const char* kMachine = "expected the name or address of rank 0's machine";
  if (const std::string_view why = why_any_machine(variables); !why.empty()) {
    variables.missing("MASTER_ADDR",
                      fmt::format("{}; {}, so that it need not be the first of {}", kMachine, why,
                                  in_quotes(variables.text("SLURM_STEP_NODELIST"))));
  }
  // SLURM_LAUNCH_NODE_IPADDR is where srun was called, often a login node, so it comes last.
  if (variables.has("SLURM_STEP_NODELIST")) {
    const std::string list = variables.text("SLURM_STEP_NODELIST");
    if (const auto host = first_host(list))
      return variables.checked_address("SLURM_STEP_NODELIST", *host);
    throw ConfigError(
        fmt::format("environment variable SLURM_STEP_NODELIST: expected machines "
                    "such as 'node[01-04],gpu7', found {}; MASTER_ADDR overrides it",
                    in_quotes(list)));
  }
  constexpr const char* kLaunchNode = "SLURM_LAUNCH_NODE_IPADDR";
  if (variables.has(kLaunchNode)) return variables.address(kLaunchNode);
  variables.missing("MASTER_ADDR", kMachine);
}

}  // namespace penstock::launch
