// What a page shows: a plan and, where there is one, its run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/plan/what_if_result.h"
#include "penstock/report/page/history.h"
#include "penstock/schedule/timeline.h"

namespace penstock::report {

struct ReportInput {
  plan::Plan plan;
  /// Drawn as lanes below each other, worker by worker. Where there are two or more, the first is
  /// the prediction that the second is compared with. Each begins at 0 with its first action.
  std::vector<schedule::Timeline> timelines = {};
  /// The page notes where it names another model or strategy than the plan.
  std::optional<History> history = {};
  /// Predicted, per worker; empty: what the plan's stages say.
  std::vector<int64_t> peak_memory_bytes = {};
  std::vector<plan::WhatIfResult> changes = {};  ///< what if; empty: not asked for
  /// Per worker, what memory is held against; nothing: the devices' memory.
  std::optional<int64_t> memory_limit_bytes = {};
  std::vector<std::string> notes = {};  ///< shown at the top: what was left out and why
};

}  // namespace penstock::report
