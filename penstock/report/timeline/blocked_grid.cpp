#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "penstock/report/report.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"

namespace penstock::report {

using schedule::Action;
using schedule::Schedule;

namespace {

constexpr size_t kMostBlockedRows = 64;
constexpr int kLeastBlockedColumns = 40;

/// One worker's list around the place where it stops.
struct BlockRow {
  size_t worker = 0;
  std::string before;  ///< the last actions that ran, cut off at the left
  std::string stop;    ///< "[0SEND_F1]", or "end"
  bool in_cycle = false;
  size_t next = 0;  ///< position behind it
};

/// As many actions before `end` as fit into `room` columns, and ".. " if these are not all.
std::string last_actions(const std::vector<Action>& list, size_t end, size_t room) {
  constexpr std::string_view kMore = ".. ";
  std::string text;
  size_t first = end;
  while (first > 0) {
    const std::string action = to_text(list[first - 1]) + ' ';
    if (text.size() + action.size() + (first > 1 ? kMore.size() : 0) > room) break;
    text.insert(0, action);
    --first;
  }
  return first == 0 ? text : std::string(kMore) + text;
}

/// As many actions from `begin` on as fit into `room` columns, and ".." if these are not all.
std::string next_actions(const std::vector<Action>& list, size_t begin, size_t room) {
  constexpr std::string_view kMore = " ..";
  std::string text;
  for (; begin < list.size(); ++begin) {
    const std::string action = ' ' + to_text(list[begin]);
    if (text.size() + action.size() + (begin + 1 < list.size() ? kMore.size() : 0) > room) break;
    text += action;
  }
  if (begin < list.size() && text.size() + kMore.size() <= room) text += kMore;
  return text;
}

/// All workers, or those of the cycle first and then the other blocked ones if there are too many.
std::vector<size_t> shown_workers(const Schedule& schedule,
                                  const std::vector<BlockedAction>& blocked) {
  std::vector<size_t> workers;
  if (schedule.workers.size() <= kMostBlockedRows) {
    for (size_t w = 0; w < schedule.workers.size(); ++w) workers.push_back(w);
    return workers;
  }
  for (const bool in_cycle : {true, false}) {
    for (const BlockedAction& stop : blocked) {
      if (stop.in_cycle == in_cycle && workers.size() < kMostBlockedRows)
        workers.push_back(stop.worker.index());
    }
  }
  std::sort(workers.begin(), workers.end());
  return workers;
}

using Stops = std::unordered_map<size_t, const BlockedAction*>;

Stops stops_by_worker(const Schedule& schedule, const std::vector<BlockedAction>& blocked) {
  Stops stops;
  for (const BlockedAction& stop : blocked) {
    const bool exists =
        stop.worker.value >= 0 && stop.worker.index() < schedule.workers.size() &&
        stop.position >= 0 &&
        static_cast<size_t>(stop.position) < schedule.workers[stop.worker.index()].size();
    if (!exists)
      throw ConfigError(
          fmt::format("worker {} has no action {}", stop.worker.value, stop.position));
    stops[stop.worker.index()] = &stop;
  }
  return stops;
}

}  // namespace

std::string blocked_grid(const Schedule& schedule, const std::vector<BlockedAction>& blocked,
                         int max_columns) {
  if (max_columns < kLeastBlockedColumns)
    throw ConfigError(fmt::format("a grid needs at least {} columns, found {}",
                                  kLeastBlockedColumns, max_columns));
  const Stops stops = stops_by_worker(schedule, blocked);
  // "w0 * "
  const size_t name_width =
      fmt::format("w{}", schedule.workers.empty() ? 0 : schedule.workers.size() - 1).size() + 3;
  const size_t room = static_cast<size_t>(max_columns) - name_width;

  std::vector<BlockRow> rows;
  size_t before_width = 0;
  size_t stop_width = 0;
  for (const size_t w : shown_workers(schedule, blocked)) {
    const auto& list = schedule.workers[w];
    const auto stop = stops.find(w);
    const bool ended = stop == stops.end();
    const size_t position = ended ? list.size() : static_cast<size_t>(stop->second->position);
    rows.push_back({.worker = w,
                    .before = last_actions(list, position, room / 2),
                    .stop = ended ? "end" : '[' + to_text(list[position]) + ']',
                    .in_cycle = !ended && stop->second->in_cycle,
                    .next = position + 1});
    before_width = std::max(before_width, rows.back().before.size());
    stop_width = std::max(stop_width, rows.back().stop.size());
  }
  const size_t after_room = room - std::min(room, before_width + stop_width);
  std::string text;
  for (const BlockRow& row : rows) {
    const auto& list = schedule.workers[row.worker];
    std::string line = fmt::format("{:<{}}{:>{}}{:<{}}{}",
                                   fmt::format("w{} {}", row.worker, row.in_cycle ? "*" : ""),
                                   name_width, row.before, before_width, row.stop, stop_width,
                                   next_actions(list, row.next, after_room));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  if (schedule.workers.size() > rows.size())
    text += fmt::format("... and {} more workers\n", schedule.workers.size() - rows.size());
  return text;
}

}  // namespace penstock::report
