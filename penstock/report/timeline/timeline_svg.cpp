#include "penstock/report/timeline/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "penstock/report/text/svg.h"
#include "penstock/report/timeline/lane_data.h"
#include "penstock/report/timeline/time_axis.h"
#include "penstock/util/error.h"
#include "penstock/util/printable.h"

namespace penstock::report {

using schedule::Action;
using schedule::Op;
using schedule::Timeline;
using schedule::TimelineEvent;

namespace {

constexpr double kWidth = 1000;
constexpr double kRight = 12;
constexpr double kLeast = 0.5;  // a bar's width

/// Bars of one look. Heights are shares of the row.
struct Look {
  std::string_view name;
  std::string_view fill;
  std::string_view label_fill;
  double height;
};
// From dark to light when printed grey: forward, recomputation, weights' gradients, backward.
constexpr std::array<Look, 7> kLooks = {
    {{"forward (F)", "#1d4477", "#ffffff", 1},
     {"backward (B), its input part (I)", "#a9cbea", "#111111", 1},
     {"weights' part of backward (W)", "#d08a3a", "#111111", 1},
     {"recomputation (R)", "#7a6fb0", "#ffffff", 1},
     {"messages", "#8a8a8a", "", 0.25},
     {"synchronisation", "#4c4c4c", "", 0.5},
     {"optimiser step", "#000000", "", 0.75}}};

size_t look_of(Op op) {
  switch (op) {
    case Op::Forward:
      return 0;
    case Op::Backward:
    case Op::BackwardInput:
      return 1;
    case Op::BackwardWeight:
      return 2;
    case Op::Recompute:
      return 3;
    case Op::SyncGradients:
    case Op::NormGradients:
      return 5;
    case Op::Step:
      return 6;
    default:
      return 4;
  }
}

std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string text_at(double x, double y, double size, std::string_view anchor,
                    std::string_view content) {
  return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n",
                     number(x), number(y), number(size), anchor, escaped(content));
}

class TimelinePicture {
 public:
  TimelinePicture(const std::vector<const Timeline*>& timelines, std::string_view title)
      : timelines_(timelines), title_(title) {
    for (const Timeline* timeline : timelines) {
      num_workers_ = std::max(num_workers_, timeline->workers.size());
      span_ns_ = std::max(span_ns_, static_cast<double>(timeline->makespan_ns()));
    }
    const size_t rows = num_workers_ * timelines.size();
    if (rows > kMaxPictureRows) {
      throw ConfigError(
          fmt::format("the picture of a timeline has at most {} rows, this one would have {}",
                      kMaxPictureRows, rows));
    }
    row_height_ = rows <= 24 ? 18 : rows <= 64 ? 12 : rows <= 128 ? 6 : 3;
    left_ = timelines.size() > 1 && row_height_ >= 12 ? 120 : 64;
    group_height_ =
        row_height_ * static_cast<double>(timelines.size()) + (row_height_ >= 12 ? 5 : 1);
  }

  std::string draw() {
    top_ = title_.empty() ? 10 : 34;
    for (size_t w = 0; w < num_workers_; ++w) draw_worker(w);
    const double bottom = top_ + group_height_ * static_cast<double>(num_workers_);
    std::string body;
    if (!title_.empty())
      body += text_at(left_, 22, 15, "start", fitted(title_, kWidth - left_ - kRight, "name"));
    body += rows_;
    for (size_t look = kLooks.size(); look-- > 0;) {
      for (const auto& [shade, path] : bars_[look]) {
        body += fmt::format(
            "<path fill=\"{}\"{} d=\"{}\"/>\n", kLooks[look].fill,
            shade > 0 ? fmt::format(" fill-opacity=\"{}\"", number(std::max(0.4, 1 - 0.25 * shade)))
                      : "",
            path);
      }
    }
    body += labels_ + draw_axis(bottom);
    double height = bottom + 44;
    body += draw_legend(height);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" role=\"img\" "
        "font-family=\"Helvetica, "
        "Arial, sans-serif\" fill=\"#111111\">\n<title>{2}</title>\n<rect width=\"{0}\" "
        "height=\"{1}\" fill=\"#ffffff\"/>\n{3}</svg>\n",
        number(kWidth), number(height), escaped(title_.empty() ? "Timeline" : title_), body);
  }

 private:
  double x_of(double ns) const {
    return left_ + (kWidth - left_ - kRight) * (span_ns_ > 0 ? ns / span_ns_ : 0);
  }

  void draw_worker(size_t worker) {
    const double top = top_ + group_height_ * static_cast<double>(worker);
    std::set<StageId> stages;
    for (const Timeline* timeline : timelines_) {
      if (worker >= timeline->workers.size()) continue;
      for (const TimelineEvent& event : timeline->workers[worker])
        stages.insert(event.action.stage);
    }
    for (size_t lane = 0; lane < timelines_.size(); ++lane) {
      const double y = top + row_height_ * static_cast<double>(lane);
      rows_ += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f4f4f4\" stroke=\"#c8c8c8\" "
          "stroke-width=\"0.4\"/>\n",
          number(left_), number(y), number(kWidth - left_ - kRight), number(row_height_));
      if (row_height_ >= 12 && timelines_.size() > 1) {
        labels_ += text_at(left_ - 5, y + row_height_ / 2 + 3.5, 10, "end",
                           fitted(timelines_[lane]->source, 64, "small"));
      }
      if (worker < timelines_[lane]->workers.size()) draw_row(*timelines_[lane], worker, y, stages);
    }
    const size_t every = row_height_ >= 6 ? 1 : 8;
    if (worker % every == 0) {
      const bool apart = timelines_.size() > 1 && row_height_ >= 12;
      labels_ += text_at(
          apart ? 8 : left_ - 5,
          top + (group_height_ - (row_height_ >= 12 ? 5 : 1)) / 2 + (row_height_ >= 12 ? 4 : 2.5),
          row_height_ >= 12 ? 11 : 7, apart ? "start" : "end", fmt::format("worker {}", worker));
    }
  }

  void draw_row(const Timeline& timeline, size_t worker, double y,
                const std::set<StageId>& stages) {
    const double origin = static_cast<double>(origin_of(timeline));
    // The last bar of each look, so that bars too narrow to see are drawn as one.
    struct Open {
      double begin = 0, end = -1;
      int shade = 0;
    };
    std::array<Open, kLooks.size()> open{};
    const auto flush = [&](size_t look) {
      Open& bar = open[look];
      if (bar.end > bar.begin)
        add_bar(look, bar.shade, bar.begin, std::max(bar.end, bar.begin + kLeast), y);
      bar.end = -1;
    };
    for (const TimelineEvent& event : timeline.workers[worker]) {
      const Action& action = event.action;
      if (action.op == Op::FreeWeights) continue;
      const size_t look = look_of(action.op);
      const double begin = x_of(static_cast<double>(event.start_ns + event.waiting_ns) - origin);
      const double end = x_of(static_cast<double>(event.end_ns) - origin);
      if (!(end > begin)) continue;
      const int shade = static_cast<int>(std::distance(stages.begin(), stages.find(action.stage)));
      Open& bar = open[look];
      const bool narrow = end - begin < kLeast && bar.end - bar.begin < kLeast * 4;
      if (bar.end > bar.begin && bar.shade == shade && narrow && begin - bar.end < kLeast) {
        bar.end = end;
        continue;
      }
      flush(look);
      bar = {begin, end, shade};
      if (schedule::is_compute(action.op))
        add_label(action, shade, stages.size() > 1, {begin, y, end - begin, row_height_});
    }
    for (size_t look = 0; look < kLooks.size(); ++look) flush(look);
  }

  void add_bar(size_t look, int shade, double begin, double end, double y) {
    const double height = row_height_ * kLooks[look].height;
    // A thin line of background between neighbours that are wide enough.
    const double gap = end - begin > 4 ? 0.4 : 0;
    bars_[look][shade] +=
        fmt::format("M{} {}h{}v{}h-{}z", number(begin), number(y + row_height_ - height),
                    number(end - begin - gap), number(height), number(end - begin - gap));
  }

  void add_label(const Action& action, int shade, bool several_stages, const Box& bar) {
    if (row_height_ < 12) return;
    const std::string name =
        fmt::format("{}{}{}", several_stages ? fmt::to_string(action.stage.value) : "",
                    schedule::to_string(action.op), action.micro_batch.value);
    const double size = row_height_ >= 18 ? 10 : 8;
    if (text_width(name, "small") * size / 11 + 2 > bar.width) return;
    labels_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
        number(bar.x + bar.width / 2), number(bar.y + bar.height / 2 + size * 0.36), number(size),
        shade < 2 ? kLooks[look_of(action.op)].label_fill : "#111111", name);
  }

  std::string draw_axis(double y) const {
    std::string text;
    const TimeAxis axis = time_axis(0, span_ns_, 9);
    for (const TimeTick& tick : axis.ticks) {
      const double x = x_of(tick.ns);
      text += fmt::format("<path d=\"M{} {}v5\" stroke=\"#111111\" stroke-width=\"0.6\"/>\n",
                          number(x), number(y));
      text += text_at(x, y + 17, 10, "middle", tick.label);
    }
    text += fmt::format("<path d=\"M{} {}H{}\" stroke=\"#111111\" stroke-width=\"0.6\"/>\n",
                        number(left_), number(y), number(kWidth - kRight));
    return text + text_at((left_ + kWidth - kRight) / 2, y + 32, 11, "middle",
                          fmt::format("time ({})", axis.unit));
  }

  std::string draw_legend(double& height) const {
    std::string text;
    double x = left_;
    height += 4;
    const auto entry = [&](std::string_view fill, std::string_view name) {
      const double width = 30 + text_width(name, "small");
      if (x + width > kWidth - kRight) {
        x = left_;
        height += 17;
      }
      text += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"10\" fill=\"{}\" stroke=\"#c8c8c8\" "
          "stroke-width=\"0.4\"/>\n",
          number(x), number(height - 4), fill);
      text += text_at(x + 19, height + 5, 10.5, "start", name);
      x += width + 8;
    };
    for (size_t look = 0; look < kLooks.size(); ++look) {
      if (!bars_[look].empty()) entry(kLooks[look].fill, kLooks[look].name);
    }
    entry("#f4f4f4", "idle");
    height += 18;
    return text;
  }

  const std::vector<const Timeline*>& timelines_;
  std::string title_;
  size_t num_workers_ = 0;
  double span_ns_ = 0;
  double row_height_ = 18;
  double group_height_ = 0;
  double left_ = 64;
  double top_ = 10;
  std::string rows_;
  std::array<std::map<int, std::string>, kLooks.size()> bars_;
  std::string labels_;
};

}  // namespace

std::string timeline_svg(const std::vector<const Timeline*>& timelines, std::string_view title) {
  return TimelinePicture(timelines, title).draw();
}

}  // namespace penstock::report
