// The launcher's parts, each alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "penstock/launch/file_descriptor.h"
#include "penstock/launch/free_port.h"
#include "penstock/launch/job_environment.h"
#include "penstock/launch/job_token.h"
#include "penstock/launch/line_prefixer.h"
#include "penstock/launch/output_queue.h"
#include "penstock/launch/process_group.h"
#include "penstock/launch/rank_environment.h"
#include "penstock/launch/signal_inbox.h"
#include "penstock/util/error.h"

namespace penstock::launch {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LinePrefixer, PassesOnWholeLines) {
  std::vector<std::string> lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  LinePrefixer prefixer("[rank 2] ");
  prefixer.add("loss ", sink);
  EXPECT_THAT(lines, ElementsAre());
  prefixer.add("0.5\n\nlo", sink);
  EXPECT_THAT(lines, ElementsAre("[rank 2] loss 0.5\n", "[rank 2] \n"));
  prefixer.finish(sink);
  prefixer.finish(sink);
  EXPECT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines.back(), "[rank 2] lo\n");
}

TEST(LinePrefixer, LeavesObjectsOfALogAsTheyAre) {
  std::string out;
  const auto sink = [&](std::string_view line) { out += line; };
  LinePrefixer prefixer("[rank 2] ");
  prefixer.add("{\"time\":\"x\",\"rank\":2}\n{\"time\":\ntext\n", sink);
  EXPECT_EQ(out, "{\"time\":\"x\",\"rank\":2}\n[rank 2] {\"time\":\n[rank 2] text\n");
}

TEST(LinePrefixer, BoundsLines) {
  constexpr size_t kMost = LinePrefixer::kMostLineBytes;
  for (const size_t piece : {size_t{1000}, kMost, 3 * kMost}) {
    std::vector<std::string> lines;
    const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
    LinePrefixer prefixer("> ");
    const std::string text = std::string(2 * kMost, 'a') + "\n" + std::string(kMost, 'b') + "\n";
    for (size_t at = 0; at < text.size(); at += piece) prefixer.add(text.substr(at, piece), sink);
    EXPECT_THAT(lines, ElementsAre("> " + std::string(kMost, 'a') + "\n",
                                   "> " + std::string(kMost, 'a') + "\n",
                                   "> " + std::string(kMost, 'b') + "\n"));
  }
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    from.reset(ends[0]);
    to.reset(ends[1]);
  }
  FileDescriptor from, to;
};

TEST(OutputQueue, KeepsWhatAPipeDoesNotTake) {
  const Pipe pipe;
  OutputQueue queue(pipe.to.get());
  const std::string text(300'000, 'x');
  queue.add(text);
  queue.write_some();  // a blocked write would hang here
  EXPECT_TRUE(queue.pending());
  std::string read_text;
  std::array<char, 4096> buffer{};
  while (read_text.size() < text.size()) {
    const ssize_t size = read(pipe.from.get(), buffer.data(), buffer.size());
    ASSERT_GT(size, 0);
    read_text.append(buffer.data(), static_cast<size_t>(size));
    queue.write_some();
  }
  EXPECT_EQ(read_text, text);
  EXPECT_FALSE(queue.pending());
}

TEST(OutputQueue, SaysWhenItIsFull) {
  const Pipe pipe;
  OutputQueue queue(pipe.to.get());
  queue.add(std::string(OutputQueue::kFullBytes, 'x'));
  EXPECT_TRUE(queue.full());
  queue.write_some();
  EXPECT_FALSE(queue.full());
}

TEST(OutputQueue, ForgetsEverythingWhenTheReaderIsGone) {
  SignalInbox signals;  // keeps SIGPIPE
  Pipe pipe;
  OutputQueue queue(pipe.to.get());
  pipe.from.reset();
  queue.add("lost");
  queue.write_some();
  queue.add("lost, too");
  EXPECT_FALSE(queue.pending());
}

TEST(OutputQueue, WritesToSocketsAndFiles) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const FileDescriptor near(ends[0]);
  const FileDescriptor far(ends[1]);
  OutputQueue queue(near.get());
  queue.add("text");
  queue.write_some();
  std::array<char, 8> buffer{};
  EXPECT_EQ(read(far.get(), buffer.data(), buffer.size()), 4);
}

TEST(SignalInbox, ReadsSignalsAndRestoresTheMask) {
  sigset_t before{}, after{};
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    SignalInbox signals;
    EXPECT_EQ(signals.next(), 0);
    raise(SIGTERM);
    EXPECT_EQ(signals.next(), SIGTERM);
    raise(SIGPIPE);  // must not end the program when the inbox is gone
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE})
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

TEST(SignalInbox, LeavesIgnoredSignalsIgnored) {
  signal(SIGHUP, SIG_IGN);
  SignalInbox signals;
  raise(SIGHUP);
  EXPECT_EQ(signals.next(), 0);
  signal(SIGHUP, SIG_DFL);
}

TEST(JobToken, IsRandomHexadecimalDigits) {
  const std::string token = make_job_token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(token, make_job_token());
}

/// A socket that listens on a port of 127.0.0.1.
FileDescriptor listener(int& port) {
  FileDescriptor result(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(result.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(result.get(), 1), 0);
  EXPECT_EQ(getsockname(result.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  return result;
}

TEST(FreePort, IsFree) {
  const int port = free_port();
  EXPECT_GE(port, 1024);
  check_port_is_free(port);
}

TEST(FreePort, NoticesAListener) {
  int port = 0;
  const FileDescriptor other = listener(port);
  EXPECT_THAT(refusal([&] { check_port_is_free(port); }),
              StartsWith("port " + std::to_string(port) + " is in use"));
}

TEST(FreePort, SaysWhenAConnectionHasAPortAtWhichNobodyListens) {
  int port = 0;
  const FileDescriptor server = listener(port);
  const FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(client.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int own = ntohs(address.sin_port);
  EXPECT_THAT(refusal([&] { check_port_is_free(own); }),
              StartsWith("port " + std::to_string(own) + " is taken, though nobody listens there"));
}

TEST(RankEnvironment, IsWhatJobEnvironmentReads) {
  setenv("PENSTOCK_LISTEN", "1", 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  JobEnvironment expected;
  expected.rank = 6;
  expected.ranks = 8;
  expected.local_rank = 2;
  expected.local_ranks = 4;
  expected.address = "127.0.0.1";
  expected.port = 4000;
  expected.token = "secret";
  expected.restart = 3;
  expected.servers = 1;
  expected.failure_pipe = 5;
  expected.launcher = "penstock launch";
  const std::vector<std::string> variables = rank_environment(expected);
  unsetenv("PENSTOCK_LISTEN");
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_THAT(variables, Contains(StartsWith("PATH=")));
  const auto job = job_environment([&](const char* name) -> const char* {
    const std::string start = std::string(name) + "=";
    for (const std::string& variable : variables) {
      if (variable.starts_with(start)) return variable.c_str() + start.size();
    }
    return nullptr;
  });
  EXPECT_EQ(job, expected);
}

Ending end_of(ProcessGroup& group) {
  for (;;) {
    if (const auto ending = group.ending()) return *ending;
    poll(nullptr, 0, 1);
  }
}

TEST(ProcessGroup, SaysHowItEnded) {
  ProcessGroup three({.command = {"sh", "-c", "exit 3"}, .environment = {}});
  EXPECT_EQ(end_of(three).text(), "ended with exit code 3");
  ProcessGroup killed({.command = {"sleep", "60"}, .environment = {}});
  EXPECT_FALSE(killed.ending());
  killed.send(SIGKILL);
  EXPECT_EQ(end_of(killed).text(), "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(end_of(killed).exit_code(), 137);
}

TEST(ProcessGroup, SaysWhatCannotBeStarted) {
  EXPECT_EQ(refusal([] { ProcessGroup({.command = {"/no/such/program"}, .environment = {}}); }),
            "cannot start '/no/such/program': No such file or directory");
}

}  // namespace
}  // namespace penstock::launch
