// Short names of actions in grids and pictures that show which of its stages a worker is at.
// Internal.
//
//   one stage per worker     F0 B0 I0 W0 R0
//   two                      F0 B0 of the worker's first stage, f0 b0 of its second
//   more                     4F0: stage 4
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/schedule/action.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"

namespace penstock::report {

class ActionLabels {
 public:
  /// Of the stages that the workers' lists name.
  explicit ActionLabels(const schedule::Schedule& schedule);
  explicit ActionLabels(const schedule::Timeline& timeline);

  /// "F0", "f0" or "4F0"; of a compute action.
  std::string text(size_t worker, const schedule::Action& action) const;
  /// 'F' or 'f': the label where there is no room.
  char letter(size_t worker, const schedule::Action& action) const;
  /// What the reader has to be told, at most 20 columns; empty when nothing.
  std::string legend() const;

 private:
  void set_style();

  enum class Style : uint8_t { Plain, Case, Stage };
  Style style_ = Style::Plain;
  std::vector<std::vector<int32_t>> stages_;  ///< by worker, ascending
};

}  // namespace penstock::report
