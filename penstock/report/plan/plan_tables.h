// The tables of a plan, which its text and its page share. Internal to the reports.
//
//   const PlanView view(plan);
//   page += stage_table(view, {.rows = 500}).html();
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "penstock/plan/what_if_result.h"
#include "penstock/report/plan/plan_view.h"
#include "penstock/report/text/table.h"

namespace penstock::report {

/// Columns that the lists below text tables may take.
inline constexpr size_t kTextWidth = 116;

struct TableSize {
  size_t rows = 64;  ///< the first ones and, when it is not among them, the slowest
  size_t layers_width = 40;
};
/// "... and 12 more"; empty where a table of `total` rows shows them all.
std::string more_rows(size_t total, size_t most);

/// Layers, places, time and memory.
Table stage_table(const PlanView& view, const TableSize& size);
/// Has no rows unless workers hold several stages.
Table worker_table(const PlanView& view, const TableSize& size);
Table link_table(const PlanView& view, const TableSize& size);

/// All families of the plan's alternatives, the plan itself marked by '*'.
Table family_table(const PlanView& view);
/// What its columns are; then why the plan wins and why the others do not.
std::vector<std::string> family_reasons(const PlanView& view);

/// One row per change.
Table change_table(const std::vector<plan::WhatIfResult>& changes);
/// "half the memory: layer 'fc6' needs 3.4 GB", of changes that leave no plan.
std::vector<std::string> change_reasons(const std::vector<plan::WhatIfResult>& changes);

}  // namespace penstock::report
