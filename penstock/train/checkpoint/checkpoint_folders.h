// The folder that holds a run's checkpoints: lists them, finds the newest and adds a new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::train {

/// "step-000000938".
std::string checkpoint_folder_name(int64_t step);

/// The content of `latest`: the name, then its checksum, so that a flipped bit cannot name another
/// checkpoint.
std::string latest_text(const std::string& name);

/// The folder's name in the content of `latest`; never a path. Throws CheckpointError, which names
/// `place`, when it is damaged.
std::string parse_latest(std::string_view text, std::string_view place);

/// Complete checkpoint folders in `directory`, newest first.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& directory);

/// The folder that `latest` names; without that file the newest. Throws CheckpointError when there
/// is none or `latest` is damaged.
std::filesystem::path latest_checkpoint(const std::filesystem::path& directory);

/// Where a run that goes on from `path` saves: `path`, or the folder around it if it is a
/// checkpoint itself.
std::filesystem::path folder_of_checkpoints(const std::filesystem::path& path);

/// Throws CheckpointError when the folder has the name of another step's checkpoint.
void check_folder_name(const std::filesystem::path& folder, int64_t step);

/// Makes the folder with its parents. Throws ConfigError, also for a folder that is a checkpoint
/// itself, or would have the name of one.
void make_checkpoint_directory(const std::filesystem::path& directory);

/// Removes files that interrupted saves left, and nothing else. Ignores errors, because leftovers
/// only cost space.
void remove_leftovers(const std::filesystem::path& directory);

/// A new empty folder to write into. Throws ConfigError when `directory` is not writable.
std::filesystem::path make_temporary_folder(const std::filesystem::path& directory,
                                            const std::string& name);

/// Renames the finished folder to its final name, replaces a checkpoint of that name, and writes
/// the name into `latest`. Throws RuntimeError.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& final_path);

/// Which checkpoints of a folder stay when a new one is whole.
struct KeptCheckpoints {
  // NOLINTNEXTLINE: a number alone says how many of the newest
  KeptCheckpoints(int newest_ones = 2, std::optional<int64_t> best_one = {})
      : newest(newest_ones), best(best_one) {}

  int newest;
  std::optional<int64_t> best;  ///< the step of one that stays besides; nothing: that of `best`
};

/// Keeps the newest and the best that `kept` says, always `current`, and folders that hold anything
/// but a checkpoint's files.
void remove_old_checkpoints(const std::filesystem::path& directory,
                            const std::filesystem::path& current, const KeptCheckpoints& kept);

/// The link `best` in `directory` names the checkpoint of this step from now on; atomic. False: it
/// is not there, or the file system has no links.
bool mark_best(const std::filesystem::path& directory, int64_t step);

}  // namespace penstock::train
