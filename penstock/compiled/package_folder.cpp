#include "penstock/compiled/package_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/compiled/compile_script.h"
#include "penstock/launch/process_group.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/output_lock.h"
#include "penstock/util/files/user_cache.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/printable.h"

namespace penstock::compiled {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMostPackageBytes = int64_t{1} << 32;
/// The script's exit code where the layers are the reason.
constexpr int kCannotCompileThis = 3;
constexpr std::string_view kPackages[] = {"forward", "backward"};

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) all.emplace_back(*one);
  return all;
}

/// The last lines of a log.
std::string end_of(const fs::path& file) {
  constexpr size_t kMostBytes = 400;
  try {
    std::string text = read_file(file);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return printable(text.substr(text.size() - std::min(text.size(), kMostBytes)));
  } catch (const Error&) {
    return {};
  }
}

/// A file descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(const fs::path& file)
      : number_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (number_ < 0) throw NoCompiler(fmt::format("cannot write {}", file.string()));
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

/// Runs the script in a folder that has the request.
void run_python(const std::string& python, const fs::path& folder, const std::atomic<bool>* stop) {
  const fs::path script = folder / "compile_piece.py";
  write_file_atomic(script, compile_script());
  const fs::path log = folder / "log.txt";
  const Descriptor output(log);
  std::optional<launch::ProcessGroup> group;
  try {
    group.emplace(launch::ProcessStart{.command = {python, script.string(), folder.string()},
                                       .environment = own_environment(),
                                       .output = output.number(),
                                       .error = output.number()});
  } catch (const ConfigError& error) {
    throw NoCompiler(fmt::format("{}. The variable PENSTOCK_PYTHON names a Python with PyTorch {}",
                                 error.what(), TORCH_VERSION));
  }
  std::optional<launch::Ending> ending;
  while (!(ending = group->ending())) {
    if (stop != nullptr && *stop) throw RuntimeError("compiling was stopped");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const int code = ending->exit_code();
  if (code == 0) return;
  std::error_code error;
  const bool has_failed = fs::exists(folder / "failure.txt", error);
  if (has_failed && code == kCannotCompileThis)
    throw ConfigError(printable(read_file(folder / "failure.txt")));
  if (has_failed) throw NoCompiler(printable(read_file(folder / "failure.txt")));
  throw NoCompiler(fmt::format("{} {}: {}", python, ending->text(), end_of(log)));
}

/// A folder of this process beside the others, removed at the end.
class Workshop {
 public:
  explicit Workshop(const fs::path& beside)
      : path_(fs::path(beside) += fmt::format(".{}", ::getpid())) {
    std::error_code error;
    fs::remove_all(path_, error);
    if (!error) fs::create_directories(path_, error);
    if (!error) fs::permissions(path_, fs::perms::owner_all, error);
    if (error)
      throw NoCompiler(fmt::format("cannot write {}: {}", path_.string(), error.message()));
  }
  ~Workshop() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Waits for a process that makes the same, in short pieces, for a signal ends the wait.
std::unique_ptr<OutputLock> lock_of(const fs::path& file, const std::atomic<bool>* stop) {
  constexpr std::chrono::milliseconds kPiece{200};
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  for (;;) {
    try {
      return std::make_unique<OutputLock>(file, kPiece);
    } catch (const ConfigError&) {
      if (stop != nullptr && *stop) throw RuntimeError("compiling was stopped");
      if (std::chrono::steady_clock::now() > end) throw;
    }
  }
}

void remove_oldest(const fs::path& place) {
  std::vector<std::pair<fs::file_time_type, fs::path>> folders;
  std::error_code error;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error)) {
    const fs::file_time_type changed = fs::last_write_time(at->path() / "request.json", error);
    if (!error) folders.emplace_back(changed, at->path());
    error.clear();  // a folder that another process has removed meanwhile, or none of ours
  }
  std::sort(folders.begin(), folders.end());
  for (size_t k = 0; k + PackageFolder::kMost < folders.size(); ++k)
    fs::remove_all(folders[k].second, error);
}

}  // namespace

PackageFolder::PackageFolder(const fs::path& place, std::string request)
    : place_(place),
      request_(std::move(request)),
      path_(place / fmt::format("{:016x}", hash_name(request_ + std::string(compile_script())))) {}

bool PackageFolder::is_whole() const {
  try {
    if (read_file(path_ / "request.json") != request_) return false;
    const Json text = answer();
    const JsonReader about(text, (path_ / "piece.json").string());
    return std::all_of(std::begin(kPackages), std::end(kPackages), [&](std::string_view name) {
      const std::string bytes = read_file(path_ / fmt::format("{}.pt2", name), kMostPackageBytes);
      return about.at(fmt::format("{}_crc", name)).integer() == crc32_of(bytes);
    });
  } catch (const Error&) {
    return false;
  }
}

std::string PackageFolder::failure() const {
  try {
    if (read_file(path_ / "request.json") != request_) return {};
    return fmt::format("{} (kept in {}: delete it to try again)",
                       printable(read_file(path_ / "failure.txt")), path_.string());
  } catch (const Error&) {
    return {};
  }
}

Json PackageFolder::answer() const {
  const fs::path file = path_ / "piece.json";
  return parse_json(read_file(file), file.string());
}

void PackageFolder::make(const std::string& python, const std::atomic<bool>* stop) const {
  std::error_code error;
  fs::create_directories(place_, error);
  // Ranks of a job on one machine want the same at the same time.
  const std::unique_ptr<OutputLock> lock = lock_of(fs::path(path_) += ".making", stop);
  if (is_whole()) return;
  if (const std::string why = failure(); !why.empty()) throw ConfigError(why);
  const Workshop workshop(path_);
  write_file_atomic(workshop.path() / "request.json", request_);
  std::exception_ptr failed;
  try {
    run_python(python, workshop.path(), stop);
  } catch (const NoCompiler&) {
    throw;
  } catch (const ConfigError&) {  // kept as well, so that no other run tries the same
    failed = std::current_exception();
  }
  fs::remove(workshop.path() / "compile_piece.py", error);
  fs::remove(workshop.path() / "log.txt", error);
  fs::remove_all(path_, error);
  fs::rename(workshop.path(), path_, error);
  // Another process has made the same meanwhile.
  if (error && !is_whole() && failure().empty())
    throw NoCompiler(fmt::format("cannot write {}: {}", path_.string(), error.message()));
  remove_oldest(place_);
  if (failed) std::rethrow_exception(failed);
}

fs::path usual_package_place() {
  const char* const chosen = std::getenv("PENSTOCK_COMPILE_CACHE");
  const fs::path place =
      chosen != nullptr && *chosen != '\0' ? fs::path(chosen) : user_cache_folder("compiled");
  if (!place.empty()) return place;
  throw ConfigError(
      "there is no folder for compiled stages: set HOME, XDG_CACHE_HOME or "
      "PENSTOCK_COMPILE_CACHE");
}

}  // namespace penstock::compiled
