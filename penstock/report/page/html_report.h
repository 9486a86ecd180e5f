// One page about a plan and, where there is one, its run: picture and tables of the plan, timeline,
// memory, curves.
//
//   ReportInput input{.plan = plan, .timelines = {predicted, measured},
//       .history = load_history("run.json")};
//   write_file_atomic("report.html", html_report(input));
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
  int64_t memory_limit_bytes = 0;  ///< per worker, what memory is held against; 0: the devices'
  std::vector<std::string> notes = {};  ///< shown at the top: what was left out and why
};

/// Over all timelines; more would not be smooth. A page of that many actions has about 8 MB.
inline constexpr int64_t kMaxReportActions = 1'000'000;
inline constexpr size_t kMaxReportWorkers = 4096;

/// Why html_report() would not draw the timelines; empty where it would. For callers that then
/// leave them out.
std::string too_large_to_draw(const std::vector<schedule::Timeline>& timelines);

/// A self-contained HTML page: no network, no library; light or dark as the viewer prefers, with a
/// switch. Names are escaped, and its content security policy admits the page's own script only.
/// Timeline and curves are drawn by script; key numbers, tables and the plan's picture need none.
/// docs/reports.md says how to read it. Throws ConfigError above the limits and for timelines that
/// name stages which the plan lacks. O(actions log actions).
std::string html_report(const ReportInput& input);

}  // namespace penstock::report
