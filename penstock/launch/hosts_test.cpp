// A job on several hosts: launches that find each other, one of which does not come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "penstock/launch/free_port.h"
#include "penstock/launch/line_socket.h"
#include "penstock/launch/testing_launched.h"

namespace penstock::launch {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

/// Launches with `ranks` shells each; a host that is missing is waited for 500 ms.
class Hosts : public ::testing::Test {
 protected:
  LaunchOptions options(int host, int ranks, const std::string& script) const {
    LaunchOptions result = shells(ranks, script);
    result.hosts = hosts_;
    result.host = host;
    result.port = port_;
    result.grace = milliseconds(2000);
    result.rejoin = milliseconds(500);
    return result;
  }

  int hosts_ = 2;
  const int port_ = free_port("127.0.0.1");
};

constexpr const char* kPlace =
    "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, servers $PENSTOCK_SERVERS, "
    "restart $PENSTOCK_RESTART";

TEST_F(Hosts, NumberTheirRanksServersLast) {
  LaunchOptions first = options(0, 2, kPlace);
  first.servers = 1;
  LaunchOptions second = options(1, 3, kPlace);
  second.servers = 1;
  first.rejoin = second.rejoin = milliseconds(20'000);
  Launching one(second);
  Launching zero(first);
  const Launched ended = zero.end();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.output, "0 of 5, 0 of 2, servers 2, restart 0\n");
  EXPECT_THAT(ended.error, HasSubstr("[rank 3] 3 of 5, 1 of 2, servers 2, restart 0\n"));
  const Launched other = one.end();
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_EQ(other.output, "");
  EXPECT_THAT(other.error, HasSubstr("[rank 1] 1 of 5, 0 of 3, servers 2, restart 0\n"));
  EXPECT_THAT(other.error, HasSubstr("[rank 2] 2 of 5, 1 of 3, servers 2, restart 0\n"));
  EXPECT_THAT(other.error, HasSubstr("[rank 4] 4 of 5, 2 of 3, servers 2, restart 0\n"));
}

TEST_F(Hosts, AFailureOnOneStartsAllAgain) {
  const std::string script =
      "echo start $RANK.$PENSTOCK_RESTART; [ $PENSTOCK_RESTART = 1 ] && exit 0; "
      "[ $RANK = 1 ] && { sleep 0.2; exit 3; }; sleep 60";
  LaunchOptions first = options(0, 1, script);
  LaunchOptions second = options(1, 1, script);
  first.max_restarts = 2;
  first.grace = second.grace = milliseconds(100);
  first.rejoin = second.rejoin = milliseconds(20'000);
  Launching one(second);
  Launching zero(first);
  const Launched ended = zero.end();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.output, "start 0.0\nstart 0.1\n");
  EXPECT_THAT(ended.error, HasSubstr("rank 0 did not end within 0.1 s: sending SIGTERM\n"));
  EXPECT_THAT(ended.error, HasSubstr("restart 1 of 2\n"));
  const Launched other = one.end();
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_THAT(other.error, HasSubstr("[rank 1] start 1.1\n"));
}

TEST_F(Hosts, OneThatDoesNotComeBackIsLeftOut) {
  const std::string script =
      "echo start $RANK of $WORLD_SIZE; [ $PENSTOCK_RESTART = 1 ] && exit 0; "
      "trap 'exit 4' TERM; while :; do sleep 0.05; done";
  LaunchOptions first = options(0, 2, script);
  first.max_restarts = 1;
  first.min_ranks = 2;
  first.grace = milliseconds(100);
  first.rejoin = milliseconds(2000);
  LaunchOptions second = options(1, 1, script);
  second.rejoin = milliseconds(20'000);
  Launching one(second);
  Launching zero(first);
  one.wait_for("start 2 of 3");
  zero.wait_for("start", 2);
  one.send(SIGKILL);
  const Launched ended = zero.end();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.output, "start 0 of 3\nstart 0 of 2\n");
  EXPECT_THAT(ended.error, HasSubstr("the launch of host 1 is gone\n"));
  EXPECT_THAT(ended.error, HasSubstr("waiting for host 1, 2 s at most\n"));
  EXPECT_THAT(ended.error, HasSubstr("host 1 is left out: 2 ranks train\n"));
}

TEST_F(Hosts, OneThatIsStartedAgainTakesPart) {
  const std::string script =
      "echo start $RANK.$PENSTOCK_RESTART; [ $PENSTOCK_RESTART = 1 ] && exit 0; "
      "trap 'exit 4' TERM; while :; do sleep 0.05; done";
  LaunchOptions first = options(0, 1, script);
  LaunchOptions second = options(1, 1, script);
  first.max_restarts = 1;
  first.grace = milliseconds(100);
  first.rejoin = second.rejoin = milliseconds(20'000);
  Launching zero(first);
  {
    Launching one(second);
    one.wait_for("start 1.0");
    zero.wait_for("start 0.0");
    one.send(SIGKILL);
    EXPECT_EQ(one.end().exit_code, 137);
  }
  Launching again(second);
  const Launched ended = zero.end();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.output, "start 0.0\nstart 0.1\n");
  const Launched other = again.end();
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_THAT(other.error, HasSubstr("[rank 1] start 1.1\n"));
}

TEST_F(Hosts, TooFewRanksAreSaid) {
  hosts_ = 3;
  LaunchOptions first = options(0, 1, "echo started");
  first.min_ranks = 3;
  LaunchOptions second = options(1, 1, "echo started");
  second.rejoin = milliseconds(20'000);
  Launching one(second);
  one.wait_for("", 0);
  const Launched ended = launched(first);
  EXPECT_EQ(ended.exit_code, 99);
  EXPECT_EQ(ended.output, "");
  const std::string why =
      "did not come within 0.5 s; without it 2 ranks train, expected at least 3 (--min-ranks)\n";
  EXPECT_THAT(ended.error, HasSubstr("thrown: host 2 " + why));
  const Launched other = one.end();
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_THAT(other.error, HasSubstr(why));
}

TEST_F(Hosts, WithoutHost0NothingStarts) {
  const Launched other = launched(options(1, 1, "echo started"));
  EXPECT_EQ(other.exit_code, 99);
  EXPECT_EQ(other.error, "thrown: cannot reach the launch of host 0 at 127.0.0.1, port " +
                             std::to_string(port_) + ", within 0.5 s\n");
}

TEST_F(Hosts, ThoseThatDoNotFitAreRefused) {
  LaunchOptions first = options(0, 1, "true");
  first.rejoin = milliseconds(3000);
  first.min_ranks = 1;
  first.secret = "one";
  Launching zero(first);
  zero.wait_for("waiting for host 1");
  const auto refusal = [&](auto change) {
    LaunchOptions other = options(1, 1, "true");
    other.rejoin = milliseconds(20'000);
    other.secret = "one";
    change(other);
    return launched(other).error;
  };
  const std::string start = "thrown: the launch of host 0 has refused this one: ";
  EXPECT_EQ(refusal([](LaunchOptions& o) { o.secret = "two"; }),
            start + "it has another PENSTOCK_JOB_TOKEN: it belongs to another job\n");
  EXPECT_EQ(refusal([](LaunchOptions& o) { o.hosts = 3; }),
            start + "it has --hosts 3, host 0 has 2\n");
  const Launched ended = zero.end();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.error, HasSubstr("refused a launch: it has --hosts 3, host 0 has 2\n"));
}

TEST_F(Hosts, AFloodOfRefusedLaunchesIsSaidInFewLines) {
  LaunchOptions first = options(0, 1, "true");
  first.rejoin = milliseconds(700);
  first.min_ranks = 1;
  Launching zero(first);
  zero.wait_for("waiting for host 1");
  for (int i = 0; i < 50; ++i) {
    LineSocket stranger(connect_to("127.0.0.1", port_, milliseconds(1000), -1));
    stranger.send("GET / HTTP/1.0");
    pollfd answer{stranger.fd(), POLLIN, 0};
    poll(&answer, 1, 1000);
  }
  const Launched ended = zero.end();
  EXPECT_EQ(ended.exit_code, 0);
  size_t refused = 0;
  for (size_t at = 0; (at = ended.error.find("refused a launch", at)) != std::string::npos; ++at)
    ++refused;
  EXPECT_EQ(refused, 6u) << ended.error;
  EXPECT_THAT(ended.error, HasSubstr("45 more launches refused, the last one: refused a launch"));
}

TEST_F(Hosts, AStartThatHasFailedElsewhereBeforeItBeginsStartsNoRanks) {
  LaunchOptions second = options(1, 1, "echo started");
  second.rejoin = milliseconds(20'000);
  const FileDescriptor listener = listen_at("127.0.0.1", port_);
  Launching one(second);
  pollfd file{listener.get(), POLLIN, 0};
  ASSERT_EQ(poll(&file, 1, 20'000), 1);
  LineSocket host0(accept_from(listener));
  const auto next_line = [&] {
    for (;;) {
      if (const auto line = host0.next_line()) return *line;
      pollfd incoming{host0.fd(), POLLIN, 0};
      if (!host0.is_open() || poll(&incoming, 1, 20'000) != 1) return std::string();
    }
  };
  EXPECT_THAT(next_line(), HasSubstr("launch-1 "));
  host0.send("start 0 2 0 29999 token 1 2\nstop");
  EXPECT_EQ(next_line(), "ended 0 0");
  host0.send("end 3");
  const Launched ended = one.end();
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(ended.output + ended.error, "");
}

TEST_F(Hosts, ASignalWhileWaitingIsTheExitCode) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (const int host : {0, 1}) {
      LaunchOptions waiting = options(host, 1, "echo started");
      waiting.rejoin = milliseconds(20'000);
      Launching one(waiting);
      if (host == 0) one.wait_for("waiting for host 1");
      // Until its signals wait in the inbox.
      std::this_thread::sleep_for(milliseconds(host == 0 ? 0 : 200));
      one.send(signal);
      const Launched ended = one.end();
      EXPECT_EQ(ended.exit_code, 128 + signal) << "host " << host;
      EXPECT_EQ(ended.output, "");
    }
  }
}

TEST_F(Hosts, ASignalToOneEndsAll) {
  const std::string script = "trap 'exit 0' INT TERM; echo ready; while :; do sleep 0.05; done";
  LaunchOptions first = options(0, 1, script);
  LaunchOptions second = options(1, 1, script);
  first.max_restarts = 3;
  first.rejoin = second.rejoin = milliseconds(20'000);
  Launching one(second);
  Launching zero(first);
  one.wait_for("ready");
  zero.wait_for("ready");
  // As ranks do, whichever is told: all end.
  one.send(SIGINT);
  zero.send(SIGINT);
  EXPECT_EQ(zero.end().exit_code, 0);
  EXPECT_EQ(one.end().exit_code, 0);
}

}  // namespace
}  // namespace penstock::launch
