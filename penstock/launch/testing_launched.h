// launch() in a process of its own, as a user's shell sees it: signals, exit code, both streams.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>

#include "penstock/launch/file_descriptor.h"
#include "penstock/launch/launcher.h"

namespace penstock::launch {

/// The launcher ran to its end.
struct Launched {
  int exit_code = -1;  // 128 + n for signal n
  std::string output;
  std::string error;
};

class Launching {
 public:
  explicit Launching(const LaunchOptions& options) {
    std::array<std::array<int, 2>, 2> ends{};
    for (auto& pipe : ends) EXPECT_EQ(pipe2(pipe.data(), O_CLOEXEC), 0);
    for (size_t i = 0; i < 2; ++i) from_[i].reset(ends[i][0]);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[0][1], STDOUT_FILENO);
      dup2(ends[1][1], STDERR_FILENO);
      int code = 99;
      try {
        code = launch(options);
      } catch (const std::exception& error) {
        dprintf(STDERR_FILENO, "thrown: %s\n", error.what());
      }
      _exit(code);
    }
    for (auto& pipe : ends) close(pipe[1]);
  }
  ~Launching() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;

  void send(int signal) const { kill(pid_, signal); }

  /// Reads until both streams together hold `count` times `text`.
  void wait_for(const std::string& text, int count = 1) {
    while (occurrences(text) < count && read_some()) continue;
    EXPECT_GE(occurrences(text), count) << text << " in: " << result_.output << result_.error;
  }

  /// Reads until nobody holds the streams any more, so that nothing is left running there.
  Launched end() {
    while (read_some()) continue;
    EXPECT_FALSE(from_[0].is_open() || from_[1].is_open()) << "something is left running";
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result_;
  }

  const std::string& error() const { return result_.error; }

 private:
  int occurrences(const std::string& text) const {
    int count = 0;
    for (const std::string& stream : {result_.output, result_.error}) {
      for (size_t at = 0; (at = stream.find(text, at)) != std::string::npos; ++at) ++count;
    }
    return count;
  }

  /// False at the end of both streams, or when nothing comes for 20 s.
  bool read_some() {
    std::array<pollfd, 2> files{{{from_[0].get(), POLLIN, 0}, {from_[1].get(), POLLIN, 0}}};
    if (!from_[0].is_open() && !from_[1].is_open()) return false;
    if (poll(files.data(), files.size(), 20'000) <= 0) return false;
    for (size_t i = 0; i < 2; ++i) {
      if (files[i].revents == 0) continue;
      std::array<char, 65536> buffer{};
      const ssize_t size = read(files[i].fd, buffer.data(), buffer.size());
      if (size <= 0) from_[i].reset();
      if (size > 0) {
        (i == 0 ? result_.output : result_.error).append(buffer.data(), static_cast<size_t>(size));
      }
    }
    return true;
  }

  pid_t pid_ = -1;
  std::array<FileDescriptor, 2> from_;
  Launched result_;
};

/// `ranks` shells that run the script, and short times.
inline LaunchOptions shells(int ranks, const std::string& script) {
  LaunchOptions options;
  options.ranks = ranks;
  options.grace = std::chrono::milliseconds(100);
  options.kill_after = std::chrono::milliseconds(100);
  options.command = {"sh", "-c", script};
  return options;
}

inline Launched launched(const LaunchOptions& options) { return Launching(options).end(); }

}  // namespace penstock::launch
