// What to launch, and how to end it: the argument of launch() (launcher.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::launch {

/// Ranks that one launcher starts at most.
inline constexpr int kMostLaunchedRanks = 4096;
inline constexpr int kMostLaunchRestarts = 1'000'000;
inline constexpr std::chrono::hours kMostGrace{24};

struct LaunchOptions {
  int ranks = 1;         ///< 1 .. kMostLaunchedRanks, servers included
  int servers = 0;       ///< the last ones of them; fewer than `ranks`
  int max_restarts = 0;  ///< 0 .. kMostLaunchRestarts
  /// Every rank writes to rank_K.log in this folder, which is made if needed; empty for none.
  std::filesystem::path log_dir;
  /// After the first failure the other ranks have this long, 0 .. kMostGrace, to notice it and
  /// report. Then SIGTERM.
  std::chrono::milliseconds grace{20'000};
  std::chrono::milliseconds kill_after{5'000};  ///< from SIGTERM to SIGKILL
  int port = 0;                                 ///< at which rank 0 listens; 0: a free one
  std::vector<std::string> command;             ///< program and arguments of every rank
};

}  // namespace penstock::launch
