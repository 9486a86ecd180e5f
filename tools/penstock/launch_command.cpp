// penstock launch: starts the ranks of a job on this machine and watches over them.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/launch/job_environment.h"
#include "penstock/launch/launcher.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/quoted.h"
#include "tools/penstock/command/command.h"

namespace penstock::tool {

namespace {

constexpr const char* kExample =
    R"(  penstock launch -n N [OPTIONS] -- train|profile|probe [ITS OPTIONS]
  penstock launch -n N [OPTIONS] -- PROGRAM [ITS ARGUMENTS]

Examples, four ranks of one training, and a Python program that trains with penstock.Trainer:
  penstock launch -n 4 -- train --model vgg_small --strategy 1f1b --workers 4
  penstock launch -n 2 -- python3 program.py

Rank 0's output is shown as it is, lines of the others come on standard error after "[rank K] ".
After a failure the other ranks are ended, too, and with --max-restarts all are started again.
Exit code: 0 when all ranks ended with 0, or that of the rank that failed first (128 + n for signal
n). SIGINT and SIGTERM go to all ranks; the second one kills them. docs/launching.md has the
variables that ranks get, and the launchers of jobs on several machines.)";

struct LaunchCommandOptions {
  launch::LaunchOptions launch;
  std::string log_dir;
  double grace_s = 20;
};

std::chrono::milliseconds checked_time(const char* option, double seconds) {
  const auto most_s = std::chrono::duration<double>(launch::kMostGrace).count();
  if (!(seconds >= 0 && seconds <= most_s))
    throw ConfigError(
        fmt::format("{} must lie between 0 and {} seconds, found {}", option, most_s, seconds));
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

void warn_of_useless(const LaunchCommandOptions& options) {
  const char* servers = std::getenv("PENSTOCK_SERVERS");
  if (servers != nullptr && std::string_view(servers) != "0") {
    std::cerr << fmt::format(
        "warning: PENSTOCK_SERVERS={} has no effect: the ranks have --servers {}\n",
        printable(servers), options.launch.servers);
  }
}

/// A rank that launches ranks would start a job per rank.
void check_not_a_rank() {
  const auto job = launch::own_job();
  if (job)
    throw ConfigError(fmt::format(
        "this process is rank {} of {} already ({}): let that launcher start `penstock train`, not "
        "`penstock launch`",
        job->rank, job->ranks, job->launcher));
}

constexpr const char* kExpected = "expected train, profile or probe";
constexpr const char* kOrProgram = " or a program (python3 program.py)";

bool has_ranks(const std::string& command) {
  return command == "train" || command == "profile" || command == "probe";
}

bool is_own_command(const CLI::App& app, const std::string& word) {
  const std::vector<const CLI::App*> all =
      app.get_parent()->get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(all.begin(), all.end(),
                     [&](const CLI::App* one) { return one->get_name() == word; });
}

/// What stands before `--` and is no option of the launcher.
void refuse_extras(const std::vector<std::string>& extras) {
  if (extras.empty()) return;
  const std::string first = penstock::in_quotes(extras.front());
  if (extras.front().starts_with('-'))
    throw ConfigError(
        fmt::format("unknown option {}; those of the command stand after `--`", first));
  throw ConfigError(fmt::format("expected `--` before {}", first));
}

/// What stands after `--`.
void check_words(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty())
    throw ConfigError(fmt::format("there is nothing to launch: {} after `--`{}, with its options",
                                  kExpected, kOrProgram));
  const std::string& command = words.front();
  if (command == "launch")
    throw ConfigError(
        fmt::format("a launch cannot be launched: {} after `--`, found 'launch'", kExpected));
  if (!has_ranks(command) && (command.starts_with('-') || is_own_command(app, command)))
    throw ConfigError(
        fmt::format("{} after `--`, found {}", kExpected, penstock::in_quotes(command)));
}

using Refuses = std::function<int(const std::vector<std::string>&)>;

int run_launch(LaunchCommandOptions& options, const CLI::App& app,
               const std::vector<std::string>& extras, const std::vector<std::string>& words,
               const Refuses& refuses) {
  refuse_extras(extras);
  check_words(app, words);
  if (options.launch.servers > 0 && words.front() == "profile")
    throw ConfigError("--servers: expected train or probe, 'profile' has no use for them");
  check_not_a_rank();
  options.launch.grace = checked_time("--grace", options.grace_s);
  options.launch.log_dir = options.log_dir;
  options.launch.ranks += options.launch.servers;
  if (has_ranks(words.front())) {
    // Said once, not by every rank.
    if (const int code = refuses(words); code != kExitYes) return code;
    options.launch.command = {"/proc/self/exe"};
  }
  warn_of_useless(options);
  options.launch.command.insert(options.launch.command.end(), words.begin(), words.end());
  return launch::launch(options.launch);
}

}  // namespace

int words_before_command(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return argc;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--") return i;
  }
  return argc;
}

Command launch_command(CLI::App& parent, std::vector<std::string> words, Refuses refuses) {
  auto options = std::make_shared<LaunchCommandOptions>();
  CLI::App* app = parent.add_subcommand(
      "launch", "Start the ranks of a job on this machine and watch over them");
  app->add_option("-n,--ranks", options->launch.ranks, "Number of ranks, each a process of its own")
      ->required()
      ->check(CLI::Range(1, launch::kMostLaunchedRanks));
  app->add_option("--servers", options->launch.servers,
                  "Ranks besides these that only add gradients (train --sync summation, "
                  "hierarchical, parameter-server or asynchronous)")
      ->capture_default_str()
      ->check(CLI::Range(0, launch::kMostLaunchedRanks - 1));
  app->add_option(
         "--max-restarts", options->launch.max_restarts,
         "How often to start all ranks again after a failure; not after exit code 1 (the answer "
         "no) or 2 (wrong usage), nor after a signal to the launcher")
      ->capture_default_str()
      ->check(CLI::Range(0, launch::kMostLaunchRestarts));
  app->add_option("--log-dir", options->log_dir,
                  "Folder where each rank's output goes into a file of its own, rank_K.log; rank "
                  "0's is shown as well, though no longer as on a terminal");
  app->add_option("--port", options->launch.port,
                  "Port at which rank 0 is to listen (default: a free one)")
      ->check(CLI::Range(1, 65535));
  app->add_option("--grace", options->grace_s,
                  "Seconds that the other ranks have after a failure to notice it and report; then "
                  "they get SIGTERM, 5 seconds later SIGKILL")
      ->capture_default_str();
  app->footer(kExample);
  app->allow_extras();  // refused by run_launch(), which knows why they may be there
  return {app, [app, options, words = std::move(words), refuses = std::move(refuses)]() {
            return run_launch(*options, *app, app->remaining(), words, refuses);
          }};
}

}  // namespace penstock::tool
