// Starts the ranks of a job as processes on this machine, watches over them, and starts them again
// after a failure. One poll() loop, no threads.
//
//   LaunchOptions options;
//   options.ranks = 4;
//   options.command = {"penstock", "train", "--model", "vgg_small"};
//   const int exit_code = launch(options);
#pragma once

#include "penstock/launch/launch_options.h"

namespace penstock::launch {

/// Runs the job and returns its exit code: 0 when all ranks ended with 0, otherwise that of the
/// rank that failed first (128 + n for signal n). Blocks until all ranks have ended.
///
/// Each rank is a process group of its own, reads /dev/null, and has RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, PENSTOCK_JOB_TOKEN, PENSTOCK_RESTART and
/// PENSTOCK_FAILURE_PIPE in its environment (job_environment.h). Rank 0's output passes through
/// unchanged; RankOutput says where the others' goes. What happens to ranks is told on standard
/// error, a line each.
///
/// SIGINT, SIGTERM and SIGHUP to the calling thread are passed on to all ranks; a second one kills
/// them. After a failure all ranks are ended and started again, up to `max_restarts` times, but not
/// after such a signal nor if the first rank that failed ended with exit code 1 (the answer no) or
/// 2 (wrong usage). Nothing is left in the ranks' groups when this returns or throws; when this
/// process is killed, the ranks are, too. A rank that is stopped (SIGSTOP) is not noticed here.
///
/// Throws ConfigError: an option out of bounds, a program that cannot be started, a log that cannot
/// be written, a port in use. Throws RuntimeError: no process or file descriptor left. Call it from
/// a program whose other threads block these signals and SIGCHLD.
int launch(const LaunchOptions& options);

}  // namespace penstock::launch
