// What to launch, and how to end it: the argument of launch() (launcher.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::launch {

/// Ranks that one launcher starts at most.
inline constexpr int kMostLaunchedRanks = 4096;
inline constexpr int kMostHosts = 4096;
inline constexpr int kMostLaunchRestarts = 1'000'000;
inline constexpr std::chrono::hours kMostGrace{24};

struct LaunchOptions {
  int ranks = 1;    ///< 1 .. kMostLaunchedRanks, servers included
  int servers = 0;  ///< the last ones of them; fewer than `ranks`
  /// Machines of the job, each with a launch of its own; this launch is number `host`, and the one
  /// of host 0 decides who takes part in a start.
  int hosts = 1;      ///< 1 .. kMostHosts
  int host = 0;       ///< 0 .. hosts - 1
  int min_ranks = 0;  ///< that must train for a start; 0: all ranks of all hosts
  /// How long host 0 waits for launches of other hosts, and those for host 0.
  std::chrono::milliseconds rejoin{60'000};
  std::string secret;    ///< the same for all launches of the job; may be empty
  int max_restarts = 0;  ///< 0 .. kMostLaunchRestarts
  /// Every rank writes to rank_K.log in this folder, which is made if needed; empty for none.
  std::filesystem::path log_dir;
  /// After the first failure the other ranks have this long, 0 .. kMostGrace, to notice it and
  /// report. Then SIGTERM.
  std::chrono::milliseconds grace{20'000};
  std::chrono::milliseconds kill_after{5'000};  ///< from SIGTERM to SIGKILL
  std::string address = "127.0.0.1";            ///< where rank 0 listens: one of host 0's
  /// With one host where rank 0 listens, 0: a free one. With several where the launch of host 0
  /// listens; rank 0 then has a free one.
  int port = 0;
  std::vector<std::string> command;  ///< program and arguments of every rank
};

}  // namespace penstock::launch
