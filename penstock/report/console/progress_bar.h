// Progress of long work on standard error: a bar on a terminal, a plain line now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace penstock::report {

/// Not thread-safe. Draws at most ten times a second (a terminal) or once in five seconds
/// (elsewhere).
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `detail` is put behind the bar: rate, loss...
  void update(int64_t done, int64_t total, const std::string& detail = {});
  /// Ends the line; draws the last state if it has not been drawn, without an ETA: nothing follows.
  void finish();

 private:
  /// Of the state at `now`; empty when nothing can be said yet, or nothing is left.
  std::string eta(std::chrono::steady_clock::time_point now) const;
  void draw(const std::string& eta);

  std::string label_;
  bool terminal_;
  bool dirty_ = false;  ///< a bar stands on the current line
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_drawn_;
  int64_t first_done_ = -1;  ///< what was done before the clock started
  int64_t done_ = 0;
  int64_t total_ = 0;
  std::string detail_;
  bool pending_ = false;  ///< an update that was not drawn
};

}  // namespace penstock::report
