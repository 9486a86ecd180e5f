// The parts of the page, each a heading with what is below it, or nothing where there is nothing to
// show. Internal to the reports.
#pragma once

#include <string>
#include <vector>

#include "penstock/report/page/report_input.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/schedule/timeline.h"
#include "penstock/util/files/json.h"

namespace penstock::report {

/// The throughput, measured beside predicted, as one tile.
std::string headline_section(const ReportInput& input);
std::string key_numbers_section(const ReportInput& input, const PlanView& view);
/// Bars, workers, stages and links.
std::string plan_section(const PlanView& view);
std::string strategies_section(const PlanView& view);
std::string changes_section(const std::vector<plan::WhatIfResult>& changes);
std::string notes_section(const plan::Plan& plan);

std::string timeline_section(const ReportInput& input);
std::string memory_section(const ReportInput& input);
/// What the memory of the run consisted of at its peaks.
std::string memory_account_section(const ReportInput& input);
std::string differences_section(const ReportInput& input);
/// The charts of the training run, as CurveChart::to_json() writes them: [] where there is none.
Json history_charts(const ReportInput& input);
std::string history_section(const ReportInput& input, const Json& charts);

/// Rows below the timelines, of those that have sums which travel while workers compute.
std::vector<schedule::Timeline> rows_of_sums(const ReportInput& input);

/// "+12 %", "-3.0 %".
std::string signed_percent(double share);

}  // namespace penstock::report
