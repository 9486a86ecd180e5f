#include <fmt/format.h>

#include <algorithm>

#include "penstock/report/plan/plan_picture.h"
#include "penstock/report/text/text.h"

namespace penstock::report {

namespace {

constexpr int kMostCells = 256;
constexpr double kCellWidth = 34;
constexpr double kCellHeight = 24;
constexpr double kCellGap = 4;
constexpr int kCellsPerRow = 8;
constexpr double kFramePadding = 8;
constexpr double kFrameTitle = 18;
constexpr double kFrameGap = 10;

// How a stage's workers are filled; numbers and the accent's border say the same without colour.
std::string_view cell_style(const PlanView& view, size_t s) {
  return view.bottleneck.is_stage(s) ? "cell-hot" : s % 2 == 0 ? "even" : "odd";
}

// Every unit of a level has the same size, so a level is a grid of equal boxes.
struct UnitSize {
  double width = kCellWidth;
  double height = kCellHeight;
  int columns = 1;  ///< of its children
  int children = 1;
  bool framed = false;
};

class Places {
 public:
  Places(Svg& svg, const PlanView& view)
      : svg_(svg), view_(view), sizes_(static_cast<size_t>(view.topology->num_levels()) + 1) {
    stages_of_.resize(static_cast<size_t>(view.topology->num_workers()));
    for (size_t w = 0; w < view.workers.size(); ++w) stages_of_[w] = view.workers[w].stages;
    for (size_t s = 0; s < view.stages.size(); ++s) {
      if (!view.stages[s].place) continue;
      for (int w = view.stages[s].place->first; w < view.stages[s].place->end(); ++w)
        stages_of_[static_cast<size_t>(w)] = {s};
    }
    for (const auto& stages : stages_of_) {
      sizes_[0].width = std::max(sizes_[0].width, text_width(label_of(stages), "cell-text") + 10);
    }
    for (int level = 1; level <= view.topology->num_levels(); ++level) measure(level);
  }

  double draw(double top) {
    draw_unit(view_.topology->num_levels(), 0, kPictureMargin, top);
    return top + sizes_.back().height;
  }

 private:
  void measure(int level) {
    const UnitSize& child = sizes_[static_cast<size_t>(level) - 1];
    UnitSize& size = sizes_[static_cast<size_t>(level)];
    size.children = view_.topology->unit_size(level) / view_.topology->unit_size(level - 1);
    // A unit of one child has nothing of its own to show; the outermost one holds everything.
    size.framed = level < view_.topology->num_levels() && (size.children > 1 || level == 1);
    const double gap = level == 1 ? kCellGap : kFrameGap;
    const double padding = size.framed ? kFramePadding : 0;
    const double room =
        kPictureContent -
        2 * static_cast<double>(view_.topology->num_levels() - level) * kFramePadding - 2 * padding;
    size.columns =
        std::clamp(static_cast<int>((room + gap) / (child.width + gap)), 1, size.children);
    if (level == 1 && size.framed) size.columns = std::min(size.columns, kCellsPerRow);
    const int rows = (size.children + size.columns - 1) / size.columns;
    size.width = 2 * padding + size.columns * (child.width + gap) - gap;
    if (size.framed) size.width = std::max(size.width, title_width(level));
    size.height = 2 * padding + (size.framed ? kFrameTitle : 0) + rows * (child.height + gap) - gap;
  }

  double title_width(int level) const {
    return 2 * kFramePadding + text_width(view_.level_name(level) + " 000", "small");
  }

  void draw_unit(int level, int unit, double x, double y) {
    if (level == 0) return draw_worker(unit, x, y);
    const UnitSize& size = sizes_[static_cast<size_t>(level)];
    const UnitSize& child = sizes_[static_cast<size_t>(level) - 1];
    if (size.framed) {
      svg_.rect({x, y, size.width, size.height}, "frame", 6);
      const int siblings = sizes_[static_cast<size_t>(level) + 1].children;
      svg_.text(x + kFramePadding, y + 17, "small",
                fmt::format("{} {}", view_.level_name(level), unit % siblings));
      x += kFramePadding;
      y += kFramePadding + kFrameTitle;
    }
    const double gap = level == 1 ? kCellGap : kFrameGap;
    for (int k = 0; k < size.children; ++k) {
      const int column = k % size.columns, row = k / size.columns;
      draw_unit(level - 1, unit * size.children + k, x + column * (child.width + gap),
                y + row * (child.height + gap));
    }
  }

  static std::string label_of(const std::vector<size_t>& stages) {
    constexpr size_t kMost = 4;
    std::string label;
    for (size_t k = 0; k < std::min(stages.size(), kMost); ++k)
      label += fmt::format("{}{}", k == 0 ? "" : " ", stages[k]);
    return stages.size() > kMost ? label + " .." : label;
  }

  void draw_worker(int worker, double x, double y) {
    const std::vector<size_t>& stages = stages_of_[static_cast<size_t>(worker)];
    const double width = sizes_[0].width;
    if (stages.empty()) return svg_.rect({x, y, width, kCellHeight}, "idle", 3);
    const bool hot = view_.bottleneck.kind == Bottleneck::Kind::Worker &&
                     view_.bottleneck.index == static_cast<size_t>(worker);
    svg_.rect({x, y, width, kCellHeight},
              view_.workers.empty() ? cell_style(view_, stages[0])
              : hot                 ? "cell-hot"
                                    : "even",
              3);
    svg_.text(x + width / 2, y + 16, "cell-text", label_of(stages), Anchor::Middle);
  }

  Svg& svg_;
  const PlanView& view_;
  std::vector<std::vector<size_t>> stages_of_;  ///< per worker, empty: idle
  std::vector<UnitSize> sizes_;
};

}  // namespace

double draw_places(Svg& svg, const PlanView& view, double top) {
  if (!view.topology || view.stages.empty() || (!view.stages.front().place && view.workers.empty()))
    return top;
  const int workers = view.topology->num_workers();
  if (workers > kMostCells) return top;
  svg.text(kPictureMargin, top + 14, "name", "Where the stages run");
  const std::string several = view.workers.empty() ? "" : "s";
  svg.text(kPictureMargin + 190, top + 14, "muted",
           fmt::format("a box for each of the {}, with the number{} of its stage{}{}",
                       plural(workers, "worker"), several, several,
                       workers > view.plan.num_workers() ? ", dashed where a worker idles" : ""));
  return Places(svg, view).draw(top + 28);
}

}  // namespace penstock::report
