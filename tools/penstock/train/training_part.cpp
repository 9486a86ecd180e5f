#include "tools/penstock/train/training_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "penstock/net/fabric_kind.h"
#include "penstock/util/error.h"
#include "penstock/util/text/units.h"
#include "tools/penstock/command/child.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/model_options.h"
#include "tools/penstock/command/run_file_words.h"
#include "tools/penstock/profile_arguments.h"
#include "tools/penstock/stream/stream_arguments.h"
#include "tools/penstock/train/train_arguments.h"

namespace penstock::tool {

namespace fs = std::filesystem;

namespace {

/// What loading libtorch takes: below it libtorch and the libraries under it spin or abort before
/// main(). OpenBLAS makes a buffer of 134 MB for every core, of at most 128.
int64_t address_space_to_load(int64_t cores) {
  constexpr int64_t kLibraries = 730'000'000;
  constexpr int64_t kPerCore = 135'000'000;
  return kLibraries + std::clamp<int64_t>(cores, 1, 128) * kPerCore;
}

void check_address_space() {
  const int64_t cores = std::thread::hardware_concurrency();
  const int64_t needed = address_space_to_load(cores);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= static_cast<rlim_t>(needed))
    return;
  throw RuntimeError(fmt::format(
      "libtorch needs at least {} of address space on a machine with {} cores, the limit is {}: "
      "raise it (ulimit -v)",
      format_bytes(needed), cores, format_bytes(static_cast<int64_t>(limit.rlim_cur))));
}

/// The places where the training part may lie, links to the tool followed. The Python package says
/// which of its own is for the PyTorch that is installed, or why there is none.
std::vector<fs::path> places() {
  if (const char* reason = std::getenv("PENSTOCK_NO_TRAINING")) throw RuntimeError(reason);
  if (const char* part = std::getenv("PENSTOCK_TRAINING_PART")) return {fs::path(part)};
  const fs::path folder = fs::path(own_file()).parent_path();
  return {folder / "penstock-train",
          (folder / PENSTOCK_LIBEXEC_FROM_BIN / "penstock-train").lexically_normal()};
}

fs::path find_training_part() {
  const std::vector<fs::path> all = places();
  for (const fs::path& place : all) {
    std::error_code ignored;
    if (fs::exists(place, ignored)) return place;
    if (fs::is_symlink(fs::symlink_status(place, ignored))) {
      throw RuntimeError(
          fmt::format("the training part of penstock is missing: {} is a broken link to {}",
                      place.string(), fs::read_symlink(place, ignored).string()));
    }
  }
  throw RuntimeError(
      fmt::format("the training part of penstock is missing: expected {}{}; install the tool as a "
                  "whole",
                  all.front().string(), all.size() > 1 ? " or " + all.back().string() : ""));
}

/// Whether that is all that is asked for.
template <class Arguments>
bool prints_run_file(const Arguments& arguments, const CLI::App& app) {
  if constexpr (requires { arguments.file; }) {
    if (arguments.file.prints) print_run_file(arguments, app);
    return arguments.file.prints;
  } else if constexpr (requires { arguments.request; }) {
    return prints_run_file(arguments.request, app);
  } else {
    return false;
  }
}

/// A command whose options are parsed and checked here, and which runs in the training part.
/// `prepare` sets the environment of that part.
template <class Arguments, class Add, class Check>
Command elsewhere(
    CLI::App& parent, char** argv, Add add, Check check, void (*prepare)() = [] {}) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const app = add(parent, *arguments);
  return {app,
          [arguments, app, argv, check, prepare]() -> int {
            check(*arguments);
            if (prints_run_file(*arguments, *app)) return kExitYes;
            prepare();
            start_training_part(argv);
          },
          [arguments, check] { check(*arguments); }};
}

/// SIGUSR1 asks a stream for its weights. Until it can save them the signal waits instead of ending
/// the program: what is blocked stays so in the training part, while it loads.
void hold_save_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

void start_training_part(char** argv) {
  check_address_space();
  const fs::path part = find_training_part();
  std::string path = part.string();
  std::string part_of = std::string(kPartOf) + PENSTOCK_VERSION;
  std::vector<char*> arguments{path.data(), part_of.data()};
  for (char** argument = argv + 1; *argument != nullptr; ++argument) arguments.push_back(*argument);
  arguments.push_back(nullptr);
  execv(path.c_str(), arguments.data());
  throw RuntimeError(
      fmt::format("cannot start the training part {}: {}", path, std::strerror(errno)));
}

void run_training_part(const std::vector<std::string>& words) {
  check_address_space();
  std::vector<std::string> all{std::string(kPartOf) + PENSTOCK_VERSION};
  all.insert(all.end(), words.begin(), words.end());
  const int code = run_child(find_training_part().string(), all, ChildOutput::Dropped);
  const std::string what = fmt::format("'penstock {}' for this plan", words.front());
  if (code == kExitYes) return;
  if (code == kExitUsage) throw ConfigError(what + " found the mistake above");
  throw RuntimeError(what + " failed as said above");
}

void require_training_part(const std::string& /*command*/) {
  check_address_space();
  find_training_part();
}

Command import_command(CLI::App& parent, char** argv) {
  return elsewhere<ImportArguments>(parent, argv, add_import, [](const ImportArguments&) {});
}

Command models_command(CLI::App& parent, char** argv) {
  return elsewhere<CommonOptions>(parent, argv, add_models, [](const CommonOptions&) {});
}
Command profile_command(CLI::App& parent, char** argv) {
  return elsewhere<options::ProfileRequest>(parent, argv, add_profile, check_profile);
}
Command train_command(CLI::App& parent, char** argv) {
  return elsewhere<TrainArguments>(parent, argv, add_train, [](const TrainArguments& arguments) {
    check(arguments);
    if (arguments.request.run.fabric != net::FabricKind::Nccl) return;
    // A GPU that loads a program while it runs waits for transfers
    // that are under way, and the other rank for this one.
    setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
    // Streams that share a queue of the GPU wait for each other: a transfer must not wait for a
    // stream that waits for the other rank.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  });
}
Command stream_command(CLI::App& parent, char** argv) {
  return elsewhere<options::StreamRequest>(
      parent, argv, add_stream,
      [](const options::StreamRequest& request) {
        check_stream(request);
        hold_save_signal();
      },
      // A frame's tensors are freed and needed again at once (util/freed_memory.h). tcmalloc reads
      // this when it is loaded.
      [] { setenv("TCMALLOC_RELEASE_RATE", "0", /*overwrite=*/0); });
}

}  // namespace penstock::tool
