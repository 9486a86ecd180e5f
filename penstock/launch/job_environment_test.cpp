#include "penstock/launch/job_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "penstock/launch/slurm_lists.h"
#include "penstock/launch/testing_environments.h"

namespace penstock::launch {
namespace {

const Environment kTorchrun = {{"RANK", "5"},          {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "n01"}, {"MASTER_PORT", "29500"}};
const Environment kMpirun = {{"OMPI_COMM_WORLD_RANK", "2"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Environment kSrun = {{"SLURM_PROCID", "5"},
                           {"SLURM_NTASKS", "7"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_NODEID", "2"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NUM_NODES", "4"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                           {"SLURM_STEP_NODELIST", "node[07-09,12]"},
                           {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};

JobEnvironment job(int rank, int ranks, int local_rank, int local_ranks, std::string address,
                   int port, std::string launcher) {
  JobEnvironment result;
  result.rank = rank;
  result.ranks = ranks;
  result.local_rank = local_rank;
  result.local_ranks = local_ranks;
  result.address = std::move(address);
  result.port = port;
  result.launcher = std::move(launcher);
  return result;
}

TEST(JobEnvironment, IsNothingWithoutALauncher) {
  EXPECT_EQ(read_job({}), std::nullopt);
  // What people export for a launcher, and what ours leaves in a shell, is no job.
  EXPECT_EQ(read_job({{"MASTER_ADDR", "n01"}, {"MASTER_PORT", "x"}, {"PENSTOCK_LISTEN", "x"}}),
            std::nullopt);
  EXPECT_EQ(read_job({{"PENSTOCK_JOB_TOKEN", "secret"}, {"PENSTOCK_RESTART", "x"}}), std::nullopt);
}

TEST(JobEnvironment, ReadsTorchrun) {
  EXPECT_EQ(read_job(kTorchrun), job(5, 8, 1, 4, "n01", 29500, "torchrun"));
}

TEST(JobEnvironment, ReadsPenstockLaunch) {
  JobEnvironment expected = job(5, 8, 1, 4, "n01", 29500, "penstock launch");
  expected.token = "00ff";
  expected.tls = "secret";
  expected.restart = 3;
  EXPECT_EQ(read_job(with(kTorchrun, {{"PENSTOCK_RESTART", "3"},
                                      {"PENSTOCK_JOB_TOKEN", "00ff"},
                                      {"PENSTOCK_TLS", "secret"}})),
            expected);
}

TEST(JobEnvironment, TakesTheRestartsOfTorchrun) {
  const Environment restarted =
      with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}, {"TORCHELASTIC_RESTART_COUNT", "2"}});
  JobEnvironment expected = job(5, 8, 1, 4, "n01", 29500, "torchrun");
  expected.restart = 2;
  EXPECT_EQ(read_job(restarted), expected);
  expected.restart = 4;
  EXPECT_EQ(read_job(with(restarted, {{"PENSTOCK_RESTART", "4"}})), expected);
}

TEST(JobEnvironment, LeavesTheAgentsPortToTorchrun) {
  const Environment agent = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(read_job(agent)->port, 29501);
  EXPECT_EQ(read_job(with(agent, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->port, 29500);
  EXPECT_EQ(read_job(with(agent, {{"PENSTOCK_LISTEN", "29500"}}))->port, 29500);
}

// Linux hands ports from 32768 on out to connections, the even ones first, and gives the odd ones
// to programs that listen at any free port, as torchrun --standalone does.
TEST(JobEnvironment, TakesNoPortThatAConnectionMayHave) {
  const Environment agent = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const auto port_beside = [&](const std::string& store) {
    return read_job(with(agent, {{"MASTER_PORT", store}}))->port;
  };
  EXPECT_EQ(port_beside("32766"), 32767);
  EXPECT_EQ(port_beside("32767"), 22767);
  EXPECT_EQ(port_beside("32769"), 22769);
  EXPECT_EQ(port_beside("40001"), 10001);
  EXPECT_EQ(port_beside("60999"), 10999);
  EXPECT_EQ(port_beside("65535"), 15535);
  EXPECT_EQ(read_job(with(kTorchrun, {{"MASTER_PORT", "40001"}}))->port, 40001);
}

TEST(JobEnvironment, TakesOneRankPerMachineWithoutLocalRanks) {
  EXPECT_EQ(read_job(with(kTorchrun, {{"LOCAL_RANK", "-"}, {"LOCAL_WORLD_SIZE", "-"}})),
            job(5, 8, 0, 1, "n01", 29500, "torchrun"));
}

TEST(JobEnvironment, NeedsNoAddressForOneRank) {
  EXPECT_EQ(read_job({{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
            job(0, 1, 0, 1, "127.0.0.1", kDefaultPort, "torchrun"));
  EXPECT_EQ(read_job({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"PENSTOCK_LISTEN", "7"}})->port, 7);
}

TEST(JobEnvironment, ReadsMpirun) {
  EXPECT_EQ(read_job(kMpirun), job(2, 4, 2, 4, "127.0.0.1", kDefaultPort, "mpirun"));
  EXPECT_EQ(read_job(with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                    {"MASTER_ADDR", "n01"},
                                    {"MASTER_PORT", "4000"}})),
            job(2, 4, 0, 2, "n01", 4000, "mpirun"));
  EXPECT_EQ(read_job(with(kMpirun, {{"PENSTOCK_LISTEN", "4001"}, {"MASTER_PORT", "4000"}}))->port,
            4001);
}

TEST(JobEnvironment, AsksMpirunOfSeveralMachinesForTheAddress) {
  EXPECT_EQ(
      environment_refusal(with(
          kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})),
      "environment variable MASTER_ADDR is missing: mpirun put 2 of the 4 ranks on this machine, "
      "and the others need the address of rank 0: start it with -x MASTER_ADDR=...");
}

TEST(JobEnvironment, ReadsSrun) {
  EXPECT_EQ(read_job(kSrun), job(5, 7, 1, 2, "node07", kDefaultPort, "srun"));
  EXPECT_EQ(read_job(with(kSrun, {{"MASTER_ADDR", "n01"}, {"MASTER_PORT", "4000"}})),
            job(5, 7, 1, 2, "n01", 4000, "srun"));
  EXPECT_EQ(read_job(with(kSrun, {{"SLURM_STEP_NODELIST", "-"}}))->address, "10.0.0.1");
}

TEST(JobEnvironment, ReadsSrunOnOneMachine) {
  const Environment one = {
      {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "3"}, {"SLURM_STEP_ID", "2"}};
  const JobEnvironment expected = job(3, 4, 3, 4, "127.0.0.1", kDefaultPort, "srun");
  EXPECT_EQ(read_job(one), expected);
  EXPECT_EQ(
      read_job(with(one, {{"SLURM_STEP_TASKS_PER_NODE", "4"}, {"SLURM_STEP_NODELIST", "node07"}})),
      expected);
}

TEST(JobEnvironment, DoesNotTakeShellsOfSlurmForRanks) {
  EXPECT_EQ(read_job(with(kSrun, {{"SLURM_STEP_ID", "-"}})), std::nullopt);           // sbatch
  EXPECT_EQ(read_job(with(kSrun, {{"SLURM_STEP_ID", "4294967290"}})), std::nullopt);  // salloc
  EXPECT_EQ(read_job(with(kSrun, {{"SLURM_STEP_ID", "4294967291"}})), std::nullopt);  // sbatch
  EXPECT_EQ(read_job(with(kSrun, {{"SLURM_NTASKS", "1"}})), std::nullopt);
  EXPECT_EQ(read_job(with(kSrun, {{"SLURM_NTASKS", "-"}})), std::nullopt);
}

TEST(JobEnvironment, PrefersTorchrunInsideOfSrun) {
  Environment both = kSrun;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(read_job(both)->launcher, "torchrun");
}

struct Refused {
  Environment environment;
  std::string message;
};

class JobEnvironmentRefuses : public testing::TestWithParam<Refused> {};

TEST(JobEnvironment, DoubtsRanksThatAnotherLauncherContradicts) {
  const auto doubt = [](const Environment& base, const Environment& changes) {
    return read_job(with(base, changes))->doubt;
  };
  EXPECT_EQ(doubt(kMpirun, kTorchrun),
            "RANK=5 and WORLD_SIZE=8 make this process rank 5 of 8; OMPI_COMM_WORLD_RANK=2 and "
            "OMPI_COMM_WORLD_SIZE=4 of mpirun say otherwise and are ignored: unset those that are "
            "not this job's");
  EXPECT_THAT(doubt(kSrun, kTorchrun), testing::HasSubstr("SLURM_PROCID=5 and SLURM_NTASKS=7"));
  Environment same = with(kMpirun, kTorchrun);
  same["OMPI_COMM_WORLD_RANK"] = "5";
  same["OMPI_COMM_WORLD_SIZE"] = "8";
  EXPECT_EQ(read_job(same)->doubt, "");
}

TEST(JobEnvironment, DoesNotDoubtALauncherThatAnotherOneStarted) {
  for (const char* mark : {"TORCHELASTIC_RUN_ID", "PENSTOCK_RESTART"}) {
    Environment nested = with(with(kMpirun, kSrun), kTorchrun);
    nested[mark] = "0";
    EXPECT_EQ(read_job(nested)->doubt, "") << mark;
  }
  // One process per machine that mpirun or srun alone started is no job of theirs.
  EXPECT_EQ(read_job(with(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "1"}}), kTorchrun))->doubt, "");
  EXPECT_EQ(read_job(with(with(kSrun, {{"SLURM_STEP_ID", "4294967291"}}), kTorchrun))->doubt, "");
}

TEST_P(JobEnvironmentRefuses, NamingVariableFoundAndExpected) {
  EXPECT_EQ(environment_refusal(GetParam().environment),
            "environment variable " + GetParam().message);
}

const std::string kMachine = "expected the name or address of rank 0's machine";

INSTANTIATE_TEST_SUITE_P(
    Torchrun, JobEnvironmentRefuses,
    testing::Values(
        Refused{with(kTorchrun, {{"RANK", "8"}}),
                "RANK: expected a whole number from 0 to 7 (WORLD_SIZE=8), found '8'"},
        Refused{with(kTorchrun, {{"RANK", "-1"}}),
                "RANK: expected a whole number from 0 to 7 (WORLD_SIZE=8), found '-1'"},
        Refused{with(kTorchrun, {{"RANK", "two"}}),
                "RANK: expected a whole number from 0 to 7 (WORLD_SIZE=8), found 'two'"},
        Refused{with(kTorchrun, {{"RANK", ""}}),
                "RANK: expected a whole number from 0 to 7 (WORLD_SIZE=8), found ''"},
        Refused{with(kTorchrun, {{"RANK", "-"}}),
                "RANK is missing: expected a whole number from 0 to 7 (WORLD_SIZE=8)"},
        Refused{with(kTorchrun, {{"WORLD_SIZE", "-"}}),
                "WORLD_SIZE is missing: expected a whole number from 1 to 1000000"},
        Refused{with(kTorchrun, {{"WORLD_SIZE", "0"}}),
                "WORLD_SIZE: expected a whole number from 1 to 1000000, found '0'"},
        Refused{with(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}),
                "WORLD_SIZE: expected a whole number from 1 to 1000000, found "
                "'99999999999999999999'"},
        Refused{with(kTorchrun, {{"LOCAL_RANK", "-"}}),
                "LOCAL_RANK is missing: expected a whole number from 0 to 3 (LOCAL_WORLD_SIZE=4)"},
        Refused{with(kTorchrun, {{"LOCAL_WORLD_SIZE", "-"}}),
                "LOCAL_WORLD_SIZE is missing: expected a whole number from 1 to 8"},
        Refused{with(kTorchrun, {{"LOCAL_RANK", "4"}}),
                "LOCAL_RANK: expected a whole number from 0 to 3 (LOCAL_WORLD_SIZE=4), found '4'"},
        Refused{with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
                "LOCAL_WORLD_SIZE: expected a whole number from 1 to 8, found '9'"},
        Refused{with(kTorchrun, {{"MASTER_ADDR", "-"}}), "MASTER_ADDR is missing: " + kMachine},
        Refused{with(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR: " + kMachine + ", found ''"},
        Refused{with(kTorchrun, {{"MASTER_ADDR", "a b"}}),
                "MASTER_ADDR: " + kMachine + ", found 'a b'"},
        Refused{with(kTorchrun, {{"MASTER_ADDR", "a\x1b[31m"}}),
                "MASTER_ADDR: " + kMachine + ", found 'a?[31m'"},
        Refused{with(kTorchrun, {{"MASTER_PORT", "-"}}),
                "MASTER_PORT is missing: expected the port on which rank 0 is to listen"},
        Refused{with(kTorchrun, {{"MASTER_PORT", "0"}}),
                "MASTER_PORT: expected a whole number from 1 to 65535, found '0'"},
        Refused{with(kTorchrun, {{"MASTER_PORT", "65536"}}),
                "MASTER_PORT: expected a whole number from 1 to 65535, found '65536'"},
        Refused{with(kTorchrun, {{"PENSTOCK_LISTEN", "http"}}),
                "PENSTOCK_LISTEN: expected a whole number from 1 to 65535, found 'http'"},
        Refused{with(kTorchrun, {{"PENSTOCK_RESTART", "x"}}),
                "PENSTOCK_RESTART: expected a whole number from 0 to 1000000, found 'x'"}));

INSTANTIATE_TEST_SUITE_P(
    Mpirun, JobEnvironmentRefuses,
    testing::Values(
        Refused{with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "-"}}),
                "OMPI_COMM_WORLD_SIZE is missing: expected a whole number from 1 to 1000000"},
        Refused{with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "4"}}),
                "OMPI_COMM_WORLD_RANK: expected a whole number from 0 to 3 "
                "(OMPI_COMM_WORLD_SIZE=4), found '4'"},
        Refused{with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "-"}}),
                "OMPI_COMM_WORLD_LOCAL_RANK is missing: expected a whole number from 0 to 3 "
                "(OMPI_COMM_WORLD_LOCAL_SIZE=4)"},
        Refused{with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}),
                "OMPI_COMM_WORLD_LOCAL_SIZE: expected a whole number from 1 to 4, found '5'"},
        Refused{with(kMpirun, {{"MASTER_PORT", "x"}}),
                "MASTER_PORT: expected a whole number from 1 to 65535, found 'x'"}));

INSTANTIATE_TEST_SUITE_P(
    Srun, JobEnvironmentRefuses,
    testing::Values(
        Refused{with(kSrun, {{"SLURM_PROCID", "-"}}),
                "SLURM_PROCID is missing: expected a whole number from 0 to 6 (SLURM_NTASKS=7)"},
        Refused{with(kSrun, {{"SLURM_NTASKS", "many"}}),
                "SLURM_NTASKS: expected a whole number from 1 to 1000000, found 'many'"},
        Refused{with(kSrun, {{"SLURM_STEP_ID", "batch"}}),
                "SLURM_STEP_ID: expected a whole number from 0 to 9223372036854775807, found "
                "'batch'"},
        Refused{with(kSrun, {{"SLURM_LOCALID", "2"}}),
                "SLURM_LOCALID: expected a whole number from 0 to 1 (tasks on this machine=2), "
                "found '2'"},
        Refused{with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "-"}}),
                "SLURM_STEP_TASKS_PER_NODE is missing: expected how many tasks each machine has, "
                "such as '2(x3),1'"},
        Refused{with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}}),
                "SLURM_STEP_TASKS_PER_NODE: expected how many of the 7 tasks each machine has, "
                "such as '2(x3),1', with machine 2 among them (SLURMD_NODENAME, SLURM_NODEID), "
                "found '2(x2)'"},
        Refused{with(kSrun, {{"SLURM_STEP_NODELIST", "node[07"}}),
                "SLURM_STEP_NODELIST: expected machines such as 'node[01-04],gpu7', found "
                "'node[07'; MASTER_ADDR overrides it"},
        Refused{with(kSrun, {{"SLURM_STEP_NODELIST", "-"}, {"SLURM_LAUNCH_NODE_IPADDR", "-"}}),
                "MASTER_ADDR is missing: " + kMachine}));

TEST(JobEnvironment, NeverShowsTheToken) {
  const std::string message =
      environment_refusal(with(kTorchrun, {{"PENSTOCK_JOB_TOKEN", std::string(300, 's')}}));
  EXPECT_EQ(message,
            "environment variable PENSTOCK_JOB_TOKEN: expected at most 64 bytes, found 300");
}

TEST(SlurmLists, FirstHost) {
  EXPECT_EQ(first_host("node07"), "node07");
  EXPECT_EQ(first_host("b,a"), "b");
  EXPECT_EQ(first_host("node[07-09,12],login"), "node07");
  EXPECT_EQ(first_host("rack[1-2]node[3,4]-ib"), "rack1node3-ib");
  for (const char* bad : {"", ",a", "node[", "node[]", "node[a-b]"})
    EXPECT_EQ(first_host(bad), std::nullopt) << bad;
}

TEST(SlurmLists, IndexOfHost) {
  EXPECT_EQ(index_of_host("node07", "node07"), 0);
  EXPECT_EQ(index_of_host("node[07-09,12],login", "node08"), 1);
  EXPECT_EQ(index_of_host("node[07-09,12],login", "node12"), 3);
  EXPECT_EQ(index_of_host("node[07-09,12],login", "login"), 4);
  EXPECT_EQ(index_of_host("rack[1-2]node[3,4]-ib", "rack2node3-ib"), 2);
  for (const char* other : {"", "node7", "node10", "node07-ib", "nod", "login2"})
    EXPECT_EQ(index_of_host("node[07-09,12],login", other), std::nullopt) << other;
  for (const char* bad : {"", "n[", "n[]", "n[a-b]", "n[3-1]", "n[1-99999999999]"})
    EXPECT_EQ(index_of_host(bad, "n1"), std::nullopt) << bad;
  EXPECT_EQ(index_of_host("n[0-2147483646][0-2147483646]", "n12"), std::nullopt);
}

TEST(SlurmLists, TasksOnNode) {
  EXPECT_EQ(tasks_on_node("4", 0), 4);
  EXPECT_EQ(tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_on_node("2(x3),1", 3), 1);
  EXPECT_EQ(tasks_on_node("2(x3),1", 4), std::nullopt);
  for (const char* bad : {"", "x", "2(x", "2(x)", "2(y3)", "2(x3", "2(x99999999999)"})
    EXPECT_EQ(tasks_on_node(bad, 0), std::nullopt) << bad;
}

}  // namespace
}  // namespace penstock::launch
