#include "penstock/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "penstock/launch/testing_launched.h"
#include "penstock/util/files/files.h"

namespace penstock::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Launcher, GivesEachRankItsPlace) {
  LaunchOptions options =
      shells(2,
             "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT "
             "${#PENSTOCK_JOB_TOKEN} $PENSTOCK_RESTART");
  options.port = 23456;
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.output, "0 2 0 2 127.0.0.1 23456 32 0\n");
  EXPECT_EQ(job.error, "[rank 1] 1 2 1 2 127.0.0.1 23456 32 0\n");
}

TEST(Launcher, GivesAllRanksOnePortAndOneToken) {
  const Launched job =
      launched(shells(2, "echo \"$MASTER_PORT $PENSTOCK_JOB_TOKEN\" | sed 's/^/is /'"));
  EXPECT_EQ("[rank 1] " + job.output, job.error);
}

TEST(Launcher, PassesRank0ThroughAndPrefixesTheOthers) {
  const Launched job = launched(
      shells(2,
             "[ $RANK = 1 ] && { echo out; echo err >&2; printf end; } || { printf '0\\t'; "
             "printf E >&2; }"));
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.output, "0\t");
  // Rank 0's byte comes between any two of the lines.
  const size_t at = job.error.find('E');
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(job.error.substr(0, at) + job.error.substr(at + 1),
            "[rank 1] out\n[rank 1] err\n[rank 1] end\n");
}

TEST(Launcher, RanksDoNotInheritThatSignalsOfWritesAreIgnored) {
  const auto pipe_before = ::signal(SIGPIPE, SIG_IGN);
  const auto size_before = ::signal(SIGXFSZ, SIG_IGN);
  const Launched job = launched(shells(1, "grep SigIgn /proc/self/status"));
  ::signal(SIGPIPE, pipe_before);
  ::signal(SIGXFSZ, size_before);
  EXPECT_EQ(job.output, "SigIgn:\t0000000000200000\n");  // SIGTTOU alone
}

TEST(Launcher, BoundsALineWithoutAnEnd) {
  const Launched job =
      launched(shells(2, "[ $RANK = 0 ] || head -c 5000000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(std::count(job.error.begin(), job.error.end(), 'x'), 5'000'000);
  EXPECT_EQ(std::count(job.error.begin(), job.error.end(), '\n'), 77);  // of 64 KiB each
}

TEST(Launcher, GivesRanksAnEmptyInputAndNoBlockedSignals) {
  const Launched job = launched(shells(1, "cat; grep SigBlk /proc/self/status"));
  EXPECT_EQ(job.output, "SigBlk:\t0000000000000000\n");
}

TEST(Launcher, ReturnsTheCodeOfTheFirstRankThatFailed) {
  LaunchOptions options =
      shells(3, "[ $RANK = 1 ] && exit 3; [ $RANK = 0 ] && sleep 0.5 && exit 4; exit 0");
  options.grace = std::chrono::seconds(20);
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_EQ(job.error,
            "penstock: rank 1 ended with exit code 3\npenstock: rank 0 ended with exit code 4\n");
}

TEST(Launcher, NamesTheSignalThatKilledARank) {
  const Launched job = launched(shells(2, "[ $RANK = 0 ] || kill -9 $$"));
  EXPECT_EQ(job.exit_code, 137);
  EXPECT_EQ(job.error, "penstock: rank 1 was killed by signal 9 (SIGKILL)\n");
}

TEST(Launcher, TellsWhatARankSaidBeforeItsEnd) {
  const Launched job = launched(shells(2, "[ $RANK = 0 ] || { echo reason; exit 3; }"));
  EXPECT_EQ(job.error, "[rank 1] reason\npenstock: rank 1 ended with exit code 3\n");
}

TEST(Launcher, CountsFailuresBeyondTheFirstEight) {
  LaunchOptions options = shells(12, "exit 3");
  options.grace = std::chrono::seconds(20);
  const Launched job = launched(options);
  EXPECT_EQ(std::count(job.error.begin(), job.error.end(), '\n'), 9);
  EXPECT_THAT(job.error, HasSubstr("penstock: 4 more ranks failed\n"));
}

TEST(Launcher, LeavesTheOthersTimeToReport) {
  LaunchOptions options = shells(2,
                                 "[ $RANK = 1 ] && exit 3; trap 'echo ended' TERM; sleep 0.2; "
                                 "echo noticed");
  options.grace = std::chrono::seconds(20);
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_EQ(job.output, "noticed\n");
}

TEST(Launcher, EndsTheOthersAfterTheGrace) {
  const Launched job = launched(shells(3, "[ $RANK = 1 ] && exit 3; sleep 60"));
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_EQ(job.error,
            "penstock: rank 1 ended with exit code 3\n"
            "penstock: ranks 0, 2 did not end within 0.1 s: sending SIGTERM\n");
}

TEST(Launcher, KillsWhatIgnoresSigterm) {
  const Launched job =
      launched(shells(2, "[ $RANK = 1 ] && { sleep 0.2; exit 3; }; trap '' TERM; sleep 60"));
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_THAT(job.error, HasSubstr("penstock: rank 0 did not end within 0.1 s: killing\n"));
}

TEST(Launcher, KillsWhatARankLeavesBehind) {
  // Launching::end() waits until nobody holds the streams, and gives up after 20 s.
  EXPECT_EQ(launched(shells(1, "sleep 60 & exit 0")).exit_code, 0);
}

TEST(Launcher, StartsAllRanksAgainAfterAFailure) {
  LaunchOptions options =
      shells(2,
             "echo start $RANK.$PENSTOCK_RESTART; [ $PENSTOCK_RESTART = 2 ] && exit 0; "
             "[ $RANK = 1 ] && exit $((3 + $PENSTOCK_RESTART)); sleep 60");
  options.max_restarts = 3;
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.output, "start 0.0\nstart 0.1\nstart 0.2\n");
  const std::string ended = "penstock: rank 0 did not end within 0.1 s: sending SIGTERM\n";
  EXPECT_EQ(job.error, "[rank 1] start 1.0\npenstock: rank 1 ended with exit code 3\n" + ended +
                           "penstock: restart 1 of 3\n"
                           "[rank 1] start 1.1\npenstock: rank 1 ended with exit code 4\n" +
                           ended +
                           "penstock: restart 2 of 3\n"
                           "[rank 1] start 1.2\n");
}

TEST(Launcher, GivesUpAfterTheLastRestart) {
  LaunchOptions options = shells(1, "exit 3");
  options.max_restarts = 2;
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_THAT(job.error, HasSubstr("restart 2 of 2\npenstock: rank 0 ended with exit code 3\n"));
}

TEST(Launcher, SaysWhenTheSameRankFailsAgainAndAgain) {
  LaunchOptions options = shells(2, "[ $RANK = 0 ] || exit 3; cat <&$PENSTOCK_FAILURE_PIPE");
  options.command[0] = "bash";  // of dash, only descriptors up to 9
  options.max_restarts = 2;
  const Launched job = launched(options);
  EXPECT_THAT(job.error, HasSubstr("rank 1 was the first to fail in each of the last 2 starts: it "
                                   "ended with exit code 3 after "));
  EXPECT_THAT(job.error, Not(HasSubstr("last 3 starts")));
}

TEST(Launcher, TellsRanksAtOnceThatAnotherHasFailed) {
  LaunchOptions options =
      shells(2, "[ $RANK = 1 ] && { sleep 0.1; exit 3; }; cat <&$PENSTOCK_FAILURE_PIPE; echo told");
  options.command[0] = "bash";
  options.grace = std::chrono::seconds(20);
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_EQ(job.output, "told\n");
  EXPECT_THAT(job.error, Not(HasSubstr("SIGTERM")));
}

TEST(Launcher, EndsRanksThatAreStopped) {
  LaunchOptions options =
      shells(2,
             "trap 'echo ended; exit 4' TERM; [ $RANK = 1 ] && { sleep 0.2; exit 3; }; "
             "kill -STOP $$; sleep 60");
  options.kill_after = std::chrono::seconds(20);
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 3);
  EXPECT_EQ(job.output, "ended\n");
}

TEST(Launcher, RepeatsNeitherTheAnswerNoNorWrongUsage) {
  for (const int code : {1, 2}) {
    LaunchOptions options = shells(2, "exit " + std::to_string(code));
    options.max_restarts = 2;
    const Launched job = launched(options);
    EXPECT_EQ(job.exit_code, code);
    EXPECT_THAT(job.error, Not(HasSubstr("restart")));
  }
}

TEST(Launcher, PassesSignalsOnToAllRanks) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    LaunchOptions options =
        shells(2, "trap 'echo bye; exit 0' INT TERM HUP; sleep 60 & echo ready; wait");
    options.max_restarts = 3;
    Launching job(options);
    job.wait_for("ready", 2);
    job.send(signal);
    const Launched ended = job.end();
    EXPECT_EQ(ended.exit_code, 0);
    EXPECT_EQ(ended.output, "ready\nbye\n");
    EXPECT_EQ(ended.error, "[rank 1] ready\n[rank 1] bye\n");
  }
}

TEST(Launcher, DoesNotRestartAfterASignal) {
  LaunchOptions options = shells(2, "echo ready; sleep 60");
  options.max_restarts = 3;
  Launching job(options);
  job.wait_for("ready", 2);
  job.send(SIGTERM);
  const Launched ended = job.end();
  EXPECT_EQ(ended.exit_code, 143);
  EXPECT_THAT(ended.error, HasSubstr("was killed by signal 15 (SIGTERM)"));
  EXPECT_THAT(ended.error, Not(HasSubstr("restart")));
}

TEST(Launcher, KillsAtTheSecondSignal) {
  LaunchOptions options =
      shells(2, "trap 'echo saving' INT; echo ready; while :; do sleep 0.05; done");
  Launching job(options);
  job.wait_for("ready", 2);
  job.send(SIGINT);
  job.wait_for("saving", 2);
  job.send(SIGINT);
  const Launched ended = job.end();
  EXPECT_EQ(ended.exit_code, 137);
  EXPECT_THAT(ended.error, HasSubstr("SIGINT after an earlier signal: killing ranks 0, 1\n"));
}

TEST(Launcher, HearsSignalsWhileNobodyReads) {
  Launching job(shells(2, "yes"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // pipes and queue are full
  job.send(SIGTERM);
  EXPECT_EQ(job.end().exit_code, 143);
}

/// Whether the process runs; one that ended and that nobody has waited for does not.
bool runs(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string number, name, state;
  return file >> number >> name >> state && state != "Z" && state != "X";
}

TEST(Launcher, TakesTheRanksAlongWhenItIsKilled) {
  Launching job(shells(2, "trap '' TERM INT HUP; echo pid $$.; while :; do sleep 0.05; done"));
  job.wait_for("pid", 2);
  job.wait_for(".", 2);
  const size_t at = job.error().find("pid ") + 4;
  const std::string pid = job.error().substr(at, job.error().find('.', at) - at);
  EXPECT_TRUE(runs(pid));
  job.send(SIGKILL);
  EXPECT_EQ(job.end().exit_code, 137);  // rank 0 holds the streams
  for (int i = 0; i < 500 && runs(pid); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(runs(pid));
}

TEST(Launcher, WritesLogs) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) /
                                       ("penstock_launcher_test." + std::to_string(getpid())) /
                                       "logs";
  LaunchOptions options = shells(
      2,
      "echo out $RANK; echo err $RANK >&2; [ $RANK = 0 ] || exit $((3 * (1 - $PENSTOCK_RESTART)))");
  options.log_dir = folder;
  options.max_restarts = 1;
  options.grace = std::chrono::seconds(20);
  for (int run = 0; run < 2; ++run) {  // the second begins anew
    const Launched job = launched(options);
    EXPECT_EQ(job.exit_code, 0);
    EXPECT_EQ(job.output, "out 0\nout 0\n");
    EXPECT_THAT(job.error, HasSubstr("err 0\n"));
    EXPECT_THAT(job.error, Not(HasSubstr("err 1\n")));
    EXPECT_EQ(read_file(folder / "rank_1.log"), "out 1\nerr 1\nout 1\nerr 1\n");
    const std::string log = read_file(folder / "rank_0.log");
    EXPECT_EQ(log.size(), 24u) << log;
    EXPECT_THAT(log, HasSubstr("out 0\n"));
    EXPECT_THAT(log, HasSubstr("err 0\n"));
  }
  std::filesystem::remove_all(folder.parent_path());
}

TEST(Launcher, StartsManyRanks) {
  LaunchOptions options = shells(64, "");
  options.command = {"true"};
  const Launched job = launched(options);
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.output + job.error, "");
}

TEST(Launcher, RefusesWhatItCannotStart) {
  const auto message = [](auto change) {
    LaunchOptions options = shells(2, "true");
    change(options);
    const Launched job = launched(options);
    EXPECT_EQ(job.exit_code, 99);
    return job.error;
  };
  EXPECT_EQ(message([](LaunchOptions& o) { o.command = {"/no/such/program"}; }),
            "thrown: cannot start '/no/such/program': No such file or directory\n");
  EXPECT_EQ(message([](LaunchOptions& o) { o.command.clear(); }),
            "thrown: there is no command to launch\n");
  EXPECT_EQ(message([](LaunchOptions& o) { o.ranks = 0; }),
            "thrown: the number of ranks must lie between 1 and 4096, found 0\n");
  EXPECT_EQ(message([](LaunchOptions& o) { o.ranks = 4097; }),
            "thrown: the number of ranks must lie between 1 and 4096, found 4097\n");
  EXPECT_EQ(message([](LaunchOptions& o) { o.port = 65536; }),
            "thrown: the port (0: any) must lie between 0 and 65535, found 65536\n");
  EXPECT_EQ(message([](LaunchOptions& o) { o.max_restarts = -1; }),
            "thrown: the number of restarts must lie between 0 and 1000000, found -1\n");
  EXPECT_THAT(message([](LaunchOptions& o) { o.log_dir = "/dev/null/logs"; }),
              HasSubstr("cannot make the folder '/dev/null/logs' for logs"));
}

}  // namespace
}  // namespace penstock::launch
