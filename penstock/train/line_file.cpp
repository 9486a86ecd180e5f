#include "penstock/train/line_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <iterator>
#include <system_error>

#include "penstock/util/error.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

/// "log.1.csv", or the first such name that is free.
fs::path name_beside(const fs::path& path) {
  for (int number = 1;; ++number) {
    fs::path other = path;
    other.replace_extension(fmt::format(".{}{}", number, path.extension().string()));
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(other, ignored))) return other;
  }
}

}  // namespace

LineFile::LineFile(const fs::path& path, int64_t step, const std::string& header,
                   const std::function<std::optional<int64_t>(std::string_view)>& step_of)
    : path_(path) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::string before;
  {
    std::ifstream file(path, std::ios::binary);
    before.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::string kept;
  if (before.starts_with(header)) {
    kept = header;
    for (size_t at = header.size(); at < before.size();) {
      const size_t end = before.find('\n', at);
      if (end == std::string::npos) break;  // a line that was cut
      const std::string_view line = std::string_view(before).substr(at, end + 1 - at);
      const std::optional<int64_t> found = step_of(line);
      if (found && *found <= step) kept += line;
      at = end + 1;
    }
  }
  if (kept == header) kept.clear();
  const bool is_other = kept != before;
  if (is_other && !before.empty()) {
    const fs::path other = name_beside(path);
    fs::rename(path, other, error);
    if (error) {
      throw ConfigError(fmt::format(
          "the log '{}' holds other steps or columns, and cannot be renamed to '{}': {}; expected "
          "a folder that can be written, or another one",
          path.string(), other.string(), error.message()));
    }
  }
  file_.open(path, std::ios::binary | (is_other ? std::ios::trunc : std::ios::app));
  if (is_other) file_ << kept;
  if (kept.empty()) file_ << header;
  file_ << std::flush;
  if (!file_) {
    throw ConfigError(
        fmt::format("cannot write the log '{}': {}", path.string(),
                    error ? error.message() : std::generic_category().message(errno)));
  }
}

void LineFile::add(const std::string& line) {
  file_ << line << std::flush;
  if (!file_)
    throw RuntimeError(fmt::format("cannot write to '{}': is the disk full?", path_.string()));
}

}  // namespace penstock::train
