#include "penstock/frames/sources/labelled_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "penstock/frames/natural_order.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/printable.h"

namespace penstock::frames {

namespace {

constexpr size_t kMostClasses = 1000;
constexpr std::string_view kByTime = "seconds,label";
constexpr std::string_view kByFrame = "frame,label";

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view next_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return trimmed(line);
}

/// Negative: none that is meant.
double place_of(std::string_view text, bool is_by_time) {
  double number = -1;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = is_by_time || number == std::floor(number);
  const bool is_meant = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return is_meant && is_whole && std::isfinite(number) ? number : -1;
}

}  // namespace

LabelledSource::LabelledSource(std::unique_ptr<FrameSource> source,
                               const std::filesystem::path& file)
    : source_(std::move(source)), name_(file.string()) {
  read(file);
  if (is_by_time_ && !source_->is_live() && source_->frames_per_second() <= 0) {
    throw ConfigError(fmt::format(
        "'{}' labels by seconds, and {} has no rate: expected frames at a rate of their own, or "
        "a file with '{}'",
        printable(name_), source_->describe(), kByFrame));
  }
}

void LabelledSource::read(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  const std::string_view header = next_line(rest);
  is_by_time_ = header == kByTime;
  if (!is_by_time_ && header != kByFrame) {
    throw ParseError(name_, 1,
                     fmt::format("expected the header '{}' or '{}', found '{:.60}'", kByTime,
                                 kByFrame, printable(header)));
  }
  std::vector<std::string> labels;
  for (int64_t line = 2; !rest.empty(); ++line) {
    const std::string_view row = next_line(rest);
    if (row.empty()) continue;
    const size_t comma = row.find(',');
    const double at = place_of(trimmed(row.substr(0, comma)), is_by_time_);
    if (comma == std::string_view::npos || at < 0) {
      throw ParseError(name_, line,
                       fmt::format("expected {} and a label, such as '{},cat', found '{:.60}'",
                                   is_by_time_ ? "seconds" : "a frame's number",
                                   is_by_time_ ? "2.5" : "12", printable(row)));
    }
    if (!marks_.empty() && at <= marks_.back().at) {
      throw ParseError(
          name_, line,
          fmt::format("{} comes after {}: expected ascending rows", at, marks_.back().at));
    }
    marks_.push_back({.at = at});
    labels.emplace_back(trimmed(row.substr(comma + 1)));
  }
  classes_ = labels;
  std::erase(classes_, "");
  std::sort(classes_.begin(), classes_.end(), is_naturally_before);
  classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
  if (classes_.size() < 2 || classes_.size() > kMostClasses) {
    throw ParseError(
        name_, 1,
        fmt::format("expected 2 to {} different labels, found {}", kMostClasses, classes_.size()));
  }
  for (size_t k = 0; k < labels.size(); ++k) {
    if (labels[k].empty()) continue;
    const auto found =
        std::lower_bound(classes_.begin(), classes_.end(), labels[k], is_naturally_before);
    marks_[k].label = static_cast<int>(found - classes_.begin());
  }
}

std::string LabelledSource::describe() const {
  return fmt::format("{}, labelled by {} ({})", source_->describe(), printable(name_),
                     plural(num_classes(), "class"));
}

double LabelledSource::seconds_of(const Frame& frame) {
  if (first_ns_ < 0) first_ns_ = frame.captured_ns;
  const double rate = source_->frames_per_second();
  if (!source_->is_live() && rate > 0) return static_cast<double>(frame.number) / rate;
  return static_cast<double>(frame.captured_ns - first_ns_) / 1e9;
}

Next LabelledSource::next(Frame& frame, Deadline deadline) {
  const Next came = source_->next(frame, deadline);
  if (came != Next::Ready) return came;
  const double at = is_by_time_ ? seconds_of(frame) : static_cast<double>(frame.number);
  const auto after =
      std::upper_bound(marks_.begin(), marks_.end(), at,
                       [](double value, const Mark& mark) { return value < mark.at; });
  frame.label.reset();
  if (after == marks_.begin()) return came;
  const Mark& mark = *(after - 1);
  if (mark.label >= 0 && (is_by_time_ || mark.at == at)) frame.label = mark.label;
  return came;
}

}  // namespace penstock::frames
