// A file of lines, each of which belongs to a step: the log of a run, which a run that goes on
// continues.
//
//   LineFile log("run/log.csv", /*step=*/500, "step,loss\n", step_of_row);
//   log.add("501,0.7\n");
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::train {

/// Not thread-safe.
class LineFile {
 public:
  /// Keeps what the file says of steps up to `step`, behind `header` (which may be empty), and adds
  /// to it. Where it says anything else it is renamed first, to log.1.csv for example. `step_of`:
  /// of a line with its end; nothing: none. Throws ConfigError where it cannot be written.
  LineFile(const std::filesystem::path& path, int64_t step, const std::string& header,
           const std::function<std::optional<int64_t>(std::string_view)>& step_of);

  /// A line with its end; it is in the file when this returns. Throws RuntimeError.
  void add(const std::string& line);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace penstock::train
