// Timelines, plans and profiles as text. The page is that of page/html_report.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/plan/what_if_result.h"
#include "penstock/profile/profile.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"

namespace penstock::report {

/// A grid of time slots, one row per worker, at most `max_columns` wide, scaled so that the
/// shortest common compute action gets at least two characters: "F0 F1 B0 .. ". '.' is idle, '='
/// SYNC, '~' NORM, '+' STEP. Where workers hold two stages, the second one's actions are in lower
/// case, which a last line says; with more, actions are named "4F0", stage first.
std::string text_grid(const schedule::Timeline& timeline, int max_columns = 120);

/// The compute actions of a schedule in unit time (F, I, W, R = 1, B = 2 slots), for `penstock
/// schedule --grid`.
std::string text_grid(const schedule::Schedule& schedule, int max_columns = 120);

/// An action that never ends.
struct BlockedAction {
  WorkerId worker;
  int64_t position = 0;   ///< in the worker's list
  bool in_cycle = false;  ///< its worker is part of the cycle of waits
};
/// What the workers of a deadlocked schedule have done, the action that each is stuck at in
/// brackets under one another, and what would follow; '*' marks the workers of the cycle. Workers
/// that are not blocked show the end of their lists. Of more than 64 workers the blocked ones are
/// shown, those of the cycle first. Throws ConfigError for an action that the schedule does not
/// have.
///
///   w0 *        0F0 [0RECV_B0] 0SEND_F0 0B0
///   w1 *            [1RECV_F0] 1F0 1B0 1SEND_B0
std::string blocked_grid(const schedule::Schedule& schedule,
                         const std::vector<BlockedAction>& blocked, int max_columns = 120);

/// The plan as tables of at most about 110 columns: stages with layers, places, time and memory;
/// links; the slowest part; totals; other families in short; notes. `memory_limit_bytes` per worker
/// is what memory is held against, nothing: that of the devices. Takes any plan, also one that
/// plan::validate would refuse. Names are made printable. docs/plans.md says how to read it.
std::string plan_table(const plan::Plan& plan, std::optional<int64_t> memory_limit_bytes = {});

/// All families of the plan's alternatives in one table, the plan itself marked by '*'; below it,
/// why it wins and why the others do not.
std::string compare_table(const plan::Plan& plan);

/// One row per change; why there is no plan, below. Empty when there is nothing to show.
std::string what_if_table(const std::vector<plan::WhatIfResult>& changes);

/// The profile as a table, layer by layer, with totals.
std::string profile_table(const profile::Profile& profile);

}  // namespace penstock::report
