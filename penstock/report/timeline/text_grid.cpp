#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "penstock/report/report.h"
#include "penstock/report/timeline/action_labels.h"
#include "penstock/report/timeline/unit_time.h"
#include "penstock/util/error.h"

namespace penstock::report {

using schedule::Op;
using schedule::Schedule;
using schedule::Timeline;
using schedule::TimelineEvent;

namespace {

constexpr int kLeastColumns = 20;
constexpr size_t kMostGridRows = 256;
constexpr std::string_view kSumLegend =
    "s, k: buckets of gradients that a worker and a server add up\n";

int64_t span_ns(const TimelineEvent& event) {
  return event.end_ns - event.start_ns - event.waiting_ns;
}

// The smallest of the median durations of each stage's compute actions: one odd fast action does
// not stretch the whole grid.
int64_t shortest_compute_ns(const Timeline& timeline) {
  std::map<std::pair<int32_t, Op>, std::vector<int64_t>> spans;
  for (const auto& events : timeline.workers) {
    for (const TimelineEvent& event : events) {
      if (schedule::is_compute(event.action.op) && span_ns(event) > 0)
        spans[{event.action.stage.value, event.action.op}].push_back(span_ns(event));
    }
  }
  int64_t shortest = 0;
  for (auto& [key, values] : spans) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    shortest = shortest == 0 ? *middle : std::min(shortest, *middle);
  }
  return shortest;
}

// Room for the longest label that can be visible at two characters per action, and a space after
// it.
size_t label_columns(const Timeline& timeline, const ActionLabels& labels, size_t columns) {
  size_t longest = 2;
  for (size_t w = 0; w < timeline.workers.size(); ++w) {
    size_t seen = 0;
    for (const TimelineEvent& event : timeline.workers[w]) {
      if (!schedule::is_compute(event.action.op)) continue;
      if (++seen > columns / 3) break;
      longest = std::max(longest, labels.text(w, event.action).size());
    }
  }
  return longest + 1;
}

bool has_pairs(const Timeline& timeline) {
  return std::any_of(timeline.workers.begin(), timeline.workers.end(), [](const auto& events) {
    return std::any_of(events.begin(), events.end(),
                       [](const TimelineEvent& event) { return event.action.with_next; });
  });
}

class Row {
 public:
  Row(const ActionLabels& labels, size_t worker, size_t columns, double columns_per_ns)
      : labels_(labels), worker_(worker), cells_(columns, '.'), columns_per_ns_(columns_per_ns) {}

  void draw(const TimelineEvent& event, int64_t origin_ns) {
    const auto origin = static_cast<double>(origin_ns);
    const size_t begin = column(static_cast<double>(event.start_ns) +
                                static_cast<double>(event.waiting_ns) - origin);
    const size_t end = std::max(begin, column(static_cast<double>(event.end_ns) - origin));
    if (event.action.op == Op::SyncGradients) fill(begin, end, '=');
    if (event.action.op == Op::NormGradients) fill(begin, end, '~');
    if (event.action.op == Op::Step) fill(begin, end, '+');
    if (!schedule::is_compute(event.action.op)) return;
    const std::string text = labels_.text(worker_, event.action);
    if (text.size() > end - begin) {
      fill(begin, end, labels_.letter(worker_, event.action));
      return;
    }
    fill(begin, end, '-');
    if (end - begin > text.size()) fill(end - 1, end, event.action.with_next ? '&' : ' ');
    for (size_t c = 0; c < text.size() && begin + c < cells_.size(); ++c)
      cells_[begin + c] = text[c];
  }

  /// The last digit of the bucket while it travels.
  void draw(const schedule::SumEvent& event, int64_t origin_ns) {
    const auto origin = static_cast<double>(origin_ns);
    const size_t begin = column(static_cast<double>(event.start_ns) - origin);
    const size_t end = std::max(begin, column(static_cast<double>(event.end_ns) - origin));
    fill(begin, end, static_cast<char>('0' + event.bucket % 10));
  }

  std::string text(bool cut_off) const { return cells_ + (cut_off ? ">" : ""); }

 private:
  size_t column(double ns) const {
    const double position = std::round(ns * columns_per_ns_);
    // Beyond the edge, positions only need to keep their order and distance.
    return position > 1e9 ? size_t{1'000'000'000} : static_cast<size_t>(std::max(position, 0.0));
  }
  void fill(size_t begin, size_t end, char c) {
    for (size_t i = begin; i < std::min(end, cells_.size()); ++i) cells_[i] = c;
  }

  const ActionLabels& labels_;
  size_t worker_;
  std::string cells_;
  double columns_per_ns_;
};

std::string draw_grid(const Timeline& timeline, const ActionLabels& labels, int max_columns,
                      double columns_per_ns, int64_t origin_ns, int64_t end_ns) {
  const size_t shown = std::min(timeline.workers.size(), kMostGridRows);
  const size_t name_width = fmt::format("{}", shown == 0 ? 0 : shown - 1).size();
  // "w0  " before, ">" after
  const size_t room = static_cast<size_t>(max_columns) - name_width - 3;
  const double wanted =
      std::ceil((static_cast<double>(end_ns) - static_cast<double>(origin_ns)) * columns_per_ns);
  const bool cut_off = wanted > static_cast<double>(room);
  const size_t columns = cut_off ? room - 1 : static_cast<size_t>(std::max(wanted, 0.0));
  std::string text;
  const auto add_row = [&](char kind, size_t number, const auto& events) {
    Row row(labels, number, columns, columns_per_ns);
    for (const auto& event : events) row.draw(event, origin_ns);
    std::string line = fmt::format("{}{:<{}}  {}", kind, number, name_width, row.text(cut_off));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  auto lane = timeline.sums.begin();
  for (size_t w = 0; w < shown; ++w) {
    add_row('w', w, timeline.workers[w]);
    if (lane == timeline.sums.end() || lane->worker.value != static_cast<int32_t>(w)) continue;
    add_row('s', w, lane->events);
    ++lane;
  }
  for (; lane != timeline.sums.end(); ++lane) {
    if (lane->server >= 0) add_row('k', static_cast<size_t>(lane->server), lane->events);
  }
  if (timeline.workers.size() > shown)
    text += fmt::format("... and {} more workers\n", timeline.workers.size() - shown);
  std::string legend = labels.legend();
  if (has_pairs(timeline))
    legend += fmt::format("{}F&: together with the next", legend.empty() ? "" : "; ");
  if (!legend.empty()) text += legend + '\n';
  if (!timeline.sums.empty()) text += kSumLegend;
  return text;
}

void check_columns(int max_columns) {
  if (max_columns < kLeastColumns)
    throw ConfigError(
        fmt::format("a grid needs at least {} columns, found {}", kLeastColumns, max_columns));
}

std::string grid_of(const Timeline& timeline, const ActionLabels& labels, int max_columns) {
  int64_t origin_ns = INT64_MAX;
  int64_t end_ns = INT64_MIN;
  for (const auto& events : timeline.workers) {
    if (events.empty()) continue;
    origin_ns = std::min(origin_ns, events.front().start_ns);
    end_ns = std::max(end_ns, events.back().end_ns);
  }
  const int64_t shortest_ns = shortest_compute_ns(timeline);
  if (shortest_ns == 0 || end_ns <= origin_ns)
    return draw_grid(timeline, labels, max_columns, 0, 0, 0);
  const double columns_per_ns =
      static_cast<double>(label_columns(timeline, labels, static_cast<size_t>(max_columns))) /
      static_cast<double>(shortest_ns);
  return draw_grid(timeline, labels, max_columns, columns_per_ns, origin_ns, end_ns);
}

}  // namespace

std::string text_grid(const Timeline& timeline, int max_columns) {
  check_columns(max_columns);
  return grid_of(timeline, ActionLabels(timeline), max_columns);
}

std::string text_grid(const Schedule& schedule, int max_columns) {
  check_columns(max_columns);
  return grid_of(unit_timeline(schedule, max_columns), ActionLabels(schedule), max_columns);
}

}  // namespace penstock::report
