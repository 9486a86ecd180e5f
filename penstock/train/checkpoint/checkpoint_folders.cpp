#include "penstock/train/checkpoint/checkpoint_folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <tuple>

#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryPrefix = ".tmp-";

std::string reason_of() { return std::generic_category().message(errno); }

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_checkpoint_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return false;
  const std::string_view digits = name.substr(kPrefix.size());
  return digits.size() >= 9 && digits.size() <= 19 && is_number(digits);
}

/// Whether a save gives this name to what it writes or removes: .tmp-latest-PID, .tmp-STEP-PID,
/// .tmp-STEP-PID-old, .tmp-old-STEP, and the link .tmp-best-PID.
bool is_temporary_name(std::string_view name) {
  constexpr std::string_view kOldPrefix = "old-";
  constexpr std::string_view kOldSuffix = "-old";
  if (!name.starts_with(kTemporaryPrefix)) return false;
  name.remove_prefix(kTemporaryPrefix.size());
  if (name.starts_with(kOldPrefix)) return is_checkpoint_name(name.substr(kOldPrefix.size()));
  const bool old = name.ends_with(kOldSuffix);
  if (old) name.remove_suffix(kOldSuffix.size());
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || !is_number(name.substr(dash + 1))) return false;
  name = name.substr(0, dash);
  return is_checkpoint_name(name) || ((name == "latest" || name == "best") && !old);
}

std::vector<fs::path> entries(const fs::path& directory) {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    result.push_back(it->path());
  return result;
}

/// What lies in a checkpoint's folder and is none of its files.
std::vector<fs::path> foreign_entries(const fs::path& folder) {
  std::vector<fs::path> result = entries(folder);
  std::erase_if(result, [](const fs::path& path) {
    const std::string name = path.filename().string();
    const bool has_own_name = name == "manifest.json" || name == "weights.pt" ||
                              name == "plan.json" || name == "average.pt" ||
                              name == "adapter_config.json" ||
                              name == "adapter_model.safetensors" ||
                              (name.starts_with("layer-") && name.ends_with(".safetensors"));
    std::error_code ignored;
    return has_own_name && fs::is_regular_file(fs::symlink_status(path, ignored));
  });
  return result;
}

/// Removes a checkpoint's folder, unless it holds something else.
void remove_own(const fs::path& folder) {
  std::error_code ignored;
  if (foreign_entries(folder).empty()) fs::remove_all(folder, ignored);
}

void write_latest(const fs::path& directory, const std::string& name) {
  const fs::path temporary = directory / fmt::format("{}latest-{}", kTemporaryPrefix, ::getpid());
  const std::string text = latest_text(name);
  FileWriter file(temporary);
  file.write(text.data(), text.size());
  file.finish();
  if (::rename(temporary.c_str(), (directory / "latest").c_str()) != 0) {
    throw RuntimeError(
        fmt::format("cannot replace '{}': {}", (directory / "latest").string(), reason_of()));
  }
}

/// Removes the folder that was at `final_path` before; what is not a checkpoint's stays there.
void discard(const fs::path& old, const fs::path& final_path) {
  for (const fs::path& path : foreign_entries(old)) {
    std::error_code ignored;
    fs::rename(path, final_path / path.filename(), ignored);
  }
  remove_own(old);
}

/// The name that the link `best` has; empty: there is none.
std::string marked_best(const fs::path& directory) {
  std::error_code error;
  return fs::read_symlink(directory / "best", error).string();
}

/// Exchanges both folders atomically where the file system supports that.
void replace_folder(const fs::path& temporary, const fs::path& final_path) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) ==
      0) {
    return discard(temporary, final_path);
  }
  const fs::path old = temporary.string() + "-old";
  if (::rename(final_path.c_str(), old.c_str()) != 0 ||
      ::rename(temporary.c_str(), final_path.c_str()) != 0) {
    throw RuntimeError(fmt::format("cannot replace '{}': {}", final_path.string(), reason_of()));
  }
  discard(old, final_path);
}

}  // namespace

std::string checkpoint_folder_name(int64_t step) { return fmt::format("step-{:09}", step); }

std::string latest_text(const std::string& name) {
  return fmt::format("{}\ncrc32 {:08x}\n", name, crc32_of(name));
}

std::string parse_latest(std::string_view text, std::string_view place) {
  std::string name(text.substr(0, text.find('\n')));
  if (!is_checkpoint_name(name) || text != latest_text(name)) {
    throw CheckpointError(fmt::format(
        "{}: the file is damaged: expected the name of a checkpoint and its checksum", place));
  }
  return name;
}

std::vector<fs::path> list_checkpoints(const fs::path& directory) {
  // Newest by time, not by step: a run that was restarted from the beginning has smaller steps than
  // checkpoints of an earlier run.
  std::vector<std::tuple<fs::file_time_type, size_t, std::string>> found;
  for (const fs::path& path : entries(directory)) {
    const std::string name = path.filename().string();
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(path / "manifest.json", error);
    if (is_checkpoint_name(name) && !error) found.emplace_back(time, name.size(), name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> result;
  result.reserve(found.size());
  for (const auto& [time, length, name] : found) result.push_back(directory / name);
  return result;
}

fs::path latest_checkpoint(const fs::path& directory) {
  const fs::path file = directory / "latest";
  std::error_code error;
  if (!fs::exists(file, error)) {
    // The first save may have been interrupted just before `latest` was written.
    const std::vector<fs::path> all = list_checkpoints(directory);
    if (all.empty())
      throw CheckpointError(fmt::format("there is no checkpoint in '{}'", directory.string()));
    return all.front();
  }
  FileReader reader(file);
  constexpr int64_t kMostBytes = 100;
  std::string text(static_cast<size_t>(std::min(reader.size(), kMostBytes)), '\0');
  reader.read(text.data(), static_cast<int64_t>(text.size()));
  const std::string name = parse_latest(text, file.string());
  if (!fs::is_directory(directory / name, error)) {
    throw CheckpointError(
        fmt::format("{}: names '{}', but there is no such folder", file.string(), name));
  }
  return directory / name;
}

fs::path folder_of_checkpoints(const fs::path& path) {
  std::error_code error;
  if (path.empty() || !fs::exists(path / "manifest.json", error)) return path;
  const fs::path plain = path.has_filename() ? path : path.parent_path();
  if (is_checkpoint_name(plain.filename().string()) && !fs::is_symlink(plain, error))
    return plain.has_parent_path() ? plain.parent_path() : ".";
  // ".", a link, a name that a user has given
  return fs::weakly_canonical(plain, error).parent_path();
}

void check_folder_name(const fs::path& folder, int64_t step) {
  const std::string name = folder.filename().string();
  if (!is_checkpoint_name(name) || name == checkpoint_folder_name(step)) return;
  throw CheckpointError(fmt::format(
      "{}: expected the checkpoint of that step, found that of step {}", folder.string(), step));
}

void make_checkpoint_directory(const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / "manifest.json", error)) {
    throw ConfigError(fmt::format(
        "the checkpoint folder '{}' is a checkpoint itself; expected the folder that holds it",
        directory.string()));
  }
  const fs::path plain = directory.has_filename() ? directory : directory.parent_path();
  if (is_checkpoint_name(plain.filename().string()) && !fs::exists(plain, error)) {
    std::vector<std::string> names;
    for (const fs::path& path :
         list_checkpoints(plain.has_parent_path() ? plain.parent_path() : "."))
      names.push_back(path.filename().string());
    throw ConfigError(fmt::format(
        "there is no checkpoint '{}'{}; expected one that is there, or a folder of another name "
        "for "
        "new ones",
        plain.string(),
        names.empty() ? "" : fmt::format(" (its folder holds {})", fmt::join(names, ", "))));
  }
  fs::create_directories(directory, error);
  std::error_code ignored;
  if (fs::is_directory(directory, ignored)) return;
  throw ConfigError(fmt::format("cannot make the checkpoint folder '{}': {}", directory.string(),
                                error ? error.message() : "it is a file"));
}

void remove_leftovers(const fs::path& directory) {
  std::error_code ignored;
  for (const fs::path& path : entries(directory)) {
    if (!is_temporary_name(path.filename().string())) continue;
    const fs::file_status status = fs::symlink_status(path, ignored);
    if (fs::is_directory(status)) {
      remove_own(path);
    } else if (fs::is_regular_file(status) || fs::is_symlink(status)) {
      fs::remove(path, ignored);
    }
  }
}

fs::path make_temporary_folder(const fs::path& directory, const std::string& name) {
  fs::path path = directory / fmt::format("{}{}-{}", kTemporaryPrefix, name, ::getpid());
  std::error_code error;
  if (fs::create_directory(path, error)) return path;
  throw ConfigError(
      fmt::format("cannot write into the checkpoint folder '{}': {}", directory.string(),
                  error ? error.message() : "a file or folder of that name exists already"));
}

void publish(const fs::path& temporary, const fs::path& final_path) {
  const fs::path directory = final_path.parent_path();
  sync_directory(temporary);
  if (::rename(temporary.c_str(), final_path.c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) {
      throw RuntimeError(fmt::format("cannot rename '{}' to '{}': {}", temporary.string(),
                                     final_path.string(), reason_of()));
    }
    replace_folder(temporary, final_path);
  }
  sync_directory(directory);
  write_latest(directory, final_path.filename().string());
  sync_directory(directory);
}

void remove_old_checkpoints(const fs::path& directory, const fs::path& current,
                            const KeptCheckpoints& kept) {
  const fs::path best =
      directory / (kept.best ? checkpoint_folder_name(*kept.best) : marked_best(directory));
  int newest = 1;
  for (const fs::path& path : list_checkpoints(directory)) {
    if (path == current || newest++ < kept.newest) continue;
    if (path == best || !foreign_entries(path).empty()) continue;
    // Renamed first, because a partly removed folder must not look like a damaged checkpoint.
    const fs::path doomed =
        directory / fmt::format("{}old-{}", kTemporaryPrefix, path.filename().string());
    std::error_code ignored;
    fs::rename(path, doomed, ignored);
    remove_own(doomed);
  }
}

bool mark_best(const fs::path& directory, int64_t step) {
  const std::string name = checkpoint_folder_name(step);
  std::error_code error;
  if (!fs::exists(directory / name / "manifest.json", error)) return false;
  const fs::path link = directory / "best";
  const fs::file_status found = fs::symlink_status(link, error);
  if (fs::exists(found) && !fs::is_symlink(found)) return false;  // it is somebody else's
  const fs::path temporary = directory / fmt::format("{}best-{}", kTemporaryPrefix, ::getpid());
  fs::remove(temporary, error);
  fs::create_directory_symlink(name, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  return !error;
}

}  // namespace penstock::train
