// Timelines, plans and profiles for people and for viewers.
#pragma once

#include <string>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"

namespace penstock::report {

/// Chrome trace event format (chrome://tracing, ui.perfetto.dev): one process per timeline, one thread per worker, complete events
/// ("ph":"X") in microseconds with stage, micro-batch, version and waiting time as arguments.
std::string chrome_trace(const std::vector<const schedule::Timeline*>& timelines);

/// A grid of time slots, one row per worker, at most `max_columns` wide, scaled so that the shortest common compute action gets at least
/// two characters: "F0 F1 B0 .. ". '.' is idle.
std::string text_grid(const schedule::Timeline& timeline, int max_columns = 120);

/// The compute actions of a schedule in unit time (F = 1, B = 2 slots), for `penstock schedule --grid`.
std::string text_grid(const schedule::Schedule& schedule, int max_columns = 120);

/// The plan as a table: stages with layers, replicas, time, memory; links; bottleneck; alternatives.
std::string plan_table(const plan::Plan& plan);
/// The profile as a table, layer by layer, with totals.
std::string profile_table(const profile::Profile& profile);

}  // namespace penstock::report
