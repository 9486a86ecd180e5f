// Environments as launchers made them: Open MPI 4.1.4 and 5.0.11, PRRTE of the latter, MPICH 4.3.2,
// Intel MPI 2021.17.2 and Slurm 22.05.8 recorded from runs, of which the variables about ranks are
// left; the others as their sources and users have them.
#include "penstock/launch/launchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "penstock/launch/testing_environments.h"

namespace penstock::launch {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Recorded {
  std::string name;
  Environment environment;
  std::string read;  ///< as place_of(); or a refusal
};

/// "rank 1 of 4, 1 of 2 here, at n01:29500, mpirun"
std::string place_of(const Environment& environment) {
  try {
    const auto job = read_job(environment);
    if (!job) return "no rank";
    return "rank " + std::to_string(job->rank) + " of " + std::to_string(job->ranks) + ", " +
           std::to_string(job->local_rank) + " of " + std::to_string(job->local_ranks) +
           " here, at " + job->address + ":" + std::to_string(job->port) + ", " + job->launcher +
           (job->doubt.empty() ? "" : ", in doubt");
  } catch (const ConfigError& error) {
    return error.what();
  }
}

const Environment kOpenMpi4 = {{"OMPI_APP_CTX_NUM_PROCS", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                               {"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_UNIVERSE_SIZE", "2"},
                               {"PMIX_NAMESPACE", "710017025"},
                               {"PMIX_RANK", "1"}};
const Environment kOpenMpi5 = {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                               {"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_WORLD_LOCAL_SIZE", "2"},
                               {"OMPI_WORLD_SIZE", "2"},
                               {"PMIX_NAMESPACE", "prterun-vm-18044@1"},
                               {"PMIX_RANK", "1"},
                               {"PRTE_LAUNCHED", "1"}};
const Environment kPrrte = {
    {"PMIX_NAMESPACE", "prterun-vm-18345@1"}, {"PMIX_RANK", "1"}, {"PRTE_LAUNCHED", "1"}};
const Environment kMpich = {{"MPI_LOCALNRANKS", "2"},
                            {"MPI_LOCALRANKID", "1"},
                            {"PMI_FD", "11"},
                            {"PMI_RANK", "1"},
                            {"PMI_SIZE", "2"}};
const Environment kIntelMpi = {{"HYDRA_BSTRAP_LOCALHOST", "vm"},
                               {"I_MPI_PIN_INFO", "1"},
                               {"MPI_LOCALNRANKS", "2"},
                               {"MPI_LOCALRANKID", "1"},
                               {"PMI_FD", "11"},
                               {"PMI_RANK", "1"},
                               {"PMI_SIZE", "2"}};
const Environment kMvapich = {{"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                              {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"MV2_COMM_WORLD_RANK", "2"},
                              {"MV2_COMM_WORLD_SIZE", "4"},
                              {"PMI_ID", "2"},
                              {"MASTER_ADDR", "n01"}};
const Environment kFlux = {
    {"FLUX_JOB_NNODES", "2"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_TASK_LOCAL_ID", "1"},
    {"FLUX_TASK_RANK", "3"},  {"PMI_FD", "3"},        {"PMI_RANK", "3"},
    {"PMI_SIZE", "4"},        {"MASTER_ADDR", "n01"}};
const Environment kPals = {
    {"PALS_LOCAL_RANKID", "1"}, {"PALS_NODEID", "1"}, {"PALS_RANKID", "3"}, {"PMI_LOCAL_RANK", "1"},
    {"PMI_LOCAL_SIZE", "2"},    {"PMI_RANK", "3"},    {"PMI_SIZE", "4"},    {"MASTER_ADDR", "n01"}};
const Environment kJsrun = {{"JSM_NAMESPACE_LOCAL_RANK", "1"},
                            {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
                            {"JSM_NAMESPACE_RANK", "3"},
                            {"JSM_NAMESPACE_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"PMIX_RANK", "3"},
                            {"MASTER_ADDR", "n01"}};
const Environment kKubeflow = {{"PET_MASTER_ADDR", "job-node-0-0.job"},
                               {"PET_MASTER_PORT", "29500"},
                               {"PET_NNODES", "2"},
                               {"PET_NODE_RANK", "1"},
                               {"PET_NPROC_PER_NODE", "1"}};
const Environment kDeepSpeed = {
    {"CROSS_RANK", "0"},          {"CROSS_SIZE", "1"},     {"LOCAL_RANK", "1"},
    {"LOCAL_SIZE", "2"},          {"RANK", "1"},           {"WORLD_SIZE", "2"},
    {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
const Environment kElastic = {{"GROUP_RANK", "0"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "vm"},
                              {"MASTER_PORT", "29500"},
                              {"RANK", "1"},
                              {"TORCHELASTIC_RESTART_COUNT", "0"},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                              {"WORLD_SIZE", "2"}};
// srun -N3 -n5, of which rank 3 is the second one on n2
const Environment kSlurm = {
    {"SLURMD_NODENAME", "n2"},     {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
    {"SLURM_LOCALID", "1"},        {"SLURM_NODEID", "1"},
    {"SLURM_NTASKS", "5"},         {"SLURM_PROCID", "3"},
    {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NODELIST", "n[1-3]"},
    {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};
// srun -N1 -n1 -w n3 a : -N1 -n2 -w n1 b, of which rank 2 is the second one on n1
const Environment kHeterogeneous = with(kSlurm, {{"SLURMD_NODENAME", "n1"},
                                                 {"SLURM_HET_SIZE", "2"},
                                                 {"SLURM_NTASKS", "3"},
                                                 {"SLURM_PROCID", "2"},
                                                 {"SLURM_STEP_NODELIST", "n[1,3]"},
                                                 {"SLURM_STEP_NUM_NODES", "2"},
                                                 {"SLURM_STEP_TASKS_PER_NODE", "2,1"}});
// srun -n4 --distribution=arbitrary -w n3,n1,n1,n2, of which rank 0 is on n3
const Environment kArbitrary = with(kSlurm, {{"SLURMD_NODENAME", "n1"},
                                             {"SLURM_DISTRIBUTION", "arbitrary"},
                                             {"SLURM_NODEID", "0"},
                                             {"SLURM_NTASKS", "4"},
                                             {"SLURM_PROCID", "2"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "2,1(x2)"}});
const std::string kWhere = "environment variable MASTER_ADDR is missing: ";

class Launchers : public testing::TestWithParam<Recorded> {};

TEST_P(Launchers, GiveEachProcessItsRank) {
  EXPECT_EQ(place_of(GetParam().environment), GetParam().read);
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, Launchers,
    testing::Values(
        Recorded{"OpenMpi4", kOpenMpi4, "rank 1 of 2, 1 of 2 here, at 127.0.0.1:29511, mpirun"},
        Recorded{"OpenMpi5", kOpenMpi5, "rank 1 of 2, 1 of 2 here, at 127.0.0.1:29511, mpirun"},
        Recorded{"Mpich", kMpich, "rank 1 of 2, 1 of 2 here, at 127.0.0.1:29511, mpiexec"},
        Recorded{"IntelMpi", kIntelMpi, "rank 1 of 2, 1 of 2 here, at 127.0.0.1:29511, mpiexec"},
        Recorded{"Mvapich", kMvapich, "rank 2 of 4, 0 of 2 here, at n01:29511, mpirun_rsh"},
        Recorded{"Flux", kFlux, "rank 3 of 4, 1 of 2 here, at n01:29511, flux run"},
        Recorded{"Pals", kPals, "rank 3 of 4, 1 of 2 here, at n01:29511, mpiexec (PALS)"},
        Recorded{"Jsrun", kJsrun, "rank 3 of 4, 1 of 2 here, at n01:29511, jsrun"},
        Recorded{"Kubeflow", kKubeflow,
                 "rank 1 of 2, 0 of 1 here, at job-node-0-0.job:29500, Kubeflow Trainer"},
        Recorded{"KubeflowAlone", with(kKubeflow, {{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}),
                 "no rank"},
        Recorded{"DeepSpeed", kDeepSpeed,
                 "rank 1 of 2, 1 of 2 here, at 127.0.0.1:29500, deepspeed"},
        Recorded{"Torchrun", kElastic, "rank 1 of 2, 1 of 2 here, at vm:29500, torchrun"},
        Recorded{"PenstockLaunch",
                 with(kElastic, {{"TORCHELASTIC_RUN_ID", "-"}, {"PENSTOCK_RESTART", "0"}}),
                 "rank 1 of 2, 1 of 2 here, at vm:29500, penstock launch"},
        Recorded{"Slurm", kSlurm, "rank 3 of 5, 1 of 2 here, at n1:29511, srun"},
        Recorded{"SlurmPmi2", with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}}),
                 "rank 3 of 5, 1 of 2 here, at n1:29511, srun"},
        Recorded{"SlurmPmix", with(kSlurm, {{"PMIX_RANK", "3"}}),
                 "rank 3 of 5, 1 of 2 here, at n1:29511, srun"}),
    [](const auto& each) { return each.param.name; });

// Nobody may train alone that another process does not know of.
INSTANTIATE_TEST_SUITE_P(
    Refused, Launchers,
    testing::Values(
        Recorded{"Prrte", kPrrte,
                 "environment variable PMIX_RANK=1: a launcher of PMIx has started this process "
                 "and does not say how many there are; give each RANK, WORLD_SIZE, MASTER_ADDR and "
                 "MASTER_PORT, or unset PMIX_RANK for a process alone"},
        Recorded{"MpichOfSeveralMachines", with(kMpich, {{"PMI_SIZE", "4"}}),
                 kWhere + "mpiexec put 2 of the 4 ranks on this machine, and the others need the "
                          "address of rank 0: start it with -genv MASTER_ADDR ..."},
        Recorded{"PmiWithoutMachines",
                 {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
                 kWhere + "mpiexec does not say which ranks are on this machine, and the others "
                          "need the address of rank 0: start it with -genv MASTER_ADDR ..."},
        Recorded{"KubeflowOfAnyNumber", with(kKubeflow, {{"PET_NNODES", "1:4"}}),
                 "environment variable PET_NNODES: expected a whole number from 1 to 1000000, "
                 "found '1:4'"},
        Recorded{"HeterogeneousStep", kHeterogeneous,
                 kWhere + "expected the name or address of rank 0's machine; the job is "
                          "heterogeneous (SLURM_HET_SIZE), so that it need not be the first of "
                          "'n[1,3]'"},
        Recorded{"ArbitraryDistribution", kArbitrary,
                 kWhere + "expected the name or address of rank 0's machine; "
                          "SLURM_DISTRIBUTION=arbitrary, so that it need not be the first of "
                          "'n[1-3]'"}),
    [](const auto& each) { return each.param.name; });

TEST(Launchers, KnowTheTasksOfAMachineInAHeterogeneousStep) {
  // SLURM_NODEID is 1 there, and the list of tasks has the machine first.
  EXPECT_EQ(place_of(with(kHeterogeneous, {{"MASTER_ADDR", "n3"}})),
            "rank 2 of 3, 1 of 2 here, at n3:29511, srun");
  EXPECT_EQ(place_of(with(kArbitrary, {{"MASTER_ADDR", "n3"}})),
            "rank 2 of 4, 1 of 2 here, at n3:29511, srun");
}

Environment nested(Environment outer, const Environment& inner) {
  for (const auto& [name, value] : inner) outer[name] = value;
  return outer;
}

TEST(Launchers, TheInnerOneCountsWhereOneHasStartedAnother) {
  // MPICH's mpiexec in an allocation of two machines: a proxy on each is srun's task, and its two
  // ranks have the same SLURM_PROCID.
  const Environment proxy = with(kSlurm, {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}});
  EXPECT_EQ(
      place_of(nested(proxy,
                      with(kMpich, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MASTER_ADDR", "n1"}}))),
      "rank 3 of 4, 1 of 2 here, at n1:29511, mpiexec");
  EXPECT_EQ(place_of(nested(kSlurm, kOpenMpi5)),
            "rank 1 of 2, 1 of 2 here, at 127.0.0.1:29511, mpirun");
  for (const Environment& outer : {kSlurm, kOpenMpi4, kMpich, kFlux, kPals, kJsrun, kKubeflow})
    EXPECT_EQ(place_of(nested(with(outer, {{"MASTER_ADDR", "-"}}), kElastic)),
              "rank 1 of 2, 1 of 2 here, at vm:29500, torchrun");
  // Variables of the allocation in a batch script.
  const Environment batch = {
      {"SLURM_NTASKS", "3"}, {"SLURM_PROCID", "0"}, {"SLURM_TASKS_PER_NODE", "1(x3)"}};
  EXPECT_EQ(place_of(batch), "no rank");
  EXPECT_EQ(place_of(nested(batch, kMpich)),
            "rank 1 of 2, 1 of 2 here, at 127.0.0.1:29511, mpiexec");
}

TEST(Launchers, DoubtOperatorsWhoseRanksAreNotTheNumberOfPods) {
  const auto job = read_job(nested(kKubeflow, {{"RANK", "1"},
                                               {"WORLD_SIZE", "8"},
                                               {"MASTER_ADDR", "job-master-0"},
                                               {"MASTER_PORT", "23456"}}));
  EXPECT_THAT(job->doubt, StartsWith("RANK=1 and WORLD_SIZE=8 make this process rank 1 of 8; "
                                     "PET_NODE_RANK=1 and PET_NNODES=2 of Kubeflow Trainer"));
}

TEST(Launchers, DoubtPodsThatWereToHaveSeveralRanks) {
  const auto doubt = [](const char* processes) {
    return read_job(with(kKubeflow, {{"PET_NPROC_PER_NODE", processes}}))->doubt;
  };
  EXPECT_THAT(doubt("4"), StartsWith("PET_NPROC_PER_NODE=4 has no effect: torchrun"));
  EXPECT_EQ(doubt("1"), "");
  EXPECT_EQ(doubt("auto"), "");
}

TEST(Launchers, SayWhyAProcessIsARankWhereItsVariablesMayBeLeftOver) {
  EXPECT_EQ(read_with_reason(kSlurm)->reason, "SLURM_PROCID=3 and SLURM_NTASKS=5 of srun");
  EXPECT_EQ(
      read_with_reason(with(kSlurm, {{"SLURM_PTY_PORT", "43141"}}))->reason,
      "SLURM_PROCID=3 and SLURM_NTASKS=5 of srun, which a shell that it has started has, too");
  EXPECT_EQ(read_with_reason(kMpich)->reason, "PMI_RANK=1 and PMI_SIZE=2 of mpiexec");
  EXPECT_EQ(read_with_reason(kElastic)->reason, "");
}

TEST(Launchers, NoVariableOfOursIsThatOfAKubernetesService) {
  EXPECT_EQ(place_of(with(kMpich, {{"PENSTOCK_PORT", "tcp://10.0.0.7:80"},
                                   {"PENSTOCK_SERVICE_HOST", "10.0.0.7"},
                                   {"PENSTOCK_PORT_80_TCP", "tcp://10.0.0.7:80"}})),
            place_of(kMpich));
  EXPECT_EQ(place_of(with(kMpich, {{"MASTER_PORT", "tcp://10.0.0.7:80"}})), place_of(kMpich));
  EXPECT_THAT(place_of(with(kElastic, {{"MASTER_PORT", "tcp://10.0.0.7:80"}})),
              HasSubstr("as Kubernetes sets it for a Service of that name"));
  EXPECT_THAT(place_of(with(kMpich, {{"PENSTOCK_PORT", "29600"}})),
              HasSubstr("the port has the name PENSTOCK_LISTEN"));
  std::set<std::string> asked;
  for (const Environment& environment : {kElastic, kMpich})
    job_environment([&](const char* name) -> const char* {
      asked.insert(name);
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  for (const std::string& name : asked) {
    if (name == "PENSTOCK_PORT" || !name.starts_with("PENSTOCK_")) continue;
    EXPECT_FALSE(std::regex_search(name, std::regex("_(PORT|SERVICE_HOST|SERVICE_PORT)(_|$)")))
        << name;
  }
}

}  // namespace
}  // namespace penstock::launch
