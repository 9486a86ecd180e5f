#include "tools/penstock/stream/stream_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "penstock/report/text/text.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/units.h"

namespace penstock::tool {

namespace {

constexpr std::chrono::milliseconds kTerminal{200};
constexpr std::chrono::milliseconds kElsewhere{5000};
/// For a rate on a terminal; elsewhere that of the lines.
constexpr std::chrono::milliseconds kTerminalWindow{2000};

double accuracy(const stream::Hits& hits) {
  return hits.labels > 0 ? static_cast<double>(hits.hits) / static_cast<double>(hits.labels) : 0;
}

/// The first frame of a stream that predicts is only what the second one is predicted from.
int64_t unpredicted(const StreamReport& report) {
  return report.task == frames::Task::Predict && report.summary.queue.taken > 0 ? 1 : 0;
}

/// Frames that came and were neither processed nor dropped: in the queue, or under way when the
/// stream failed.
int64_t waiting(const StreamReport& report) {
  const stream::StreamSummary& s = report.summary;
  return std::max<int64_t>(
      0, s.queue.frames_in - s.queue.dropped - s.numbers.processed - unpredicted(report));
}

std::string wanted(const StreamReport& report) {
  if (report.wanted_fps <= 0) return "";
  const double share = report.summary.numbers.fps / report.wanted_fps;
  constexpr double kReached = 0.97;  // the first frame and the last take their time
  return fmt::format(
      ", {:.2f} wanted{}", report.wanted_fps,
      share < kReached ? fmt::format(": missed by {:.0f} %", 100 * (1 - share)) : "");
}

std::string time(double ns) { return format_duration(static_cast<int64_t>(ns)); }

std::string stage_line(size_t stage, const stream::StageTimes& times) {
  constexpr int kWidth = 20;
  const auto filled = static_cast<size_t>(times.busy * kWidth + 0.5);
  return fmt::format("  stage {:<3} [{}{}] {:3.0f} % busy   forward {:>9}   backward {:>9}", stage,
                     std::string(filled, '#'), std::string(kWidth - filled, '.'), 100 * times.busy,
                     time(times.forward_ns), time(times.backward_ns));
}

}  // namespace

std::string line_of(const stream::StreamLook& look, const stream::StreamNumbers& recent,
                    bool has_deadline) {
  const stream::StreamNumbers& part = look.part.processed > 0 ? look.part : look.whole;
  std::string text =
      fmt::format("{:>7.1f} s  in {}  out {}  dropped {}  {:.1f} frames/s  latency {} (99 %: {})",
                  static_cast<double>(look.whole.elapsed_ns) / 1e9, look.queue.frames_in,
                  look.whole.processed, look.queue.dropped, recent.fps,
                  format_duration(part.latency_p50_ns), format_duration(part.latency_p99_ns));
  if (has_deadline) text += fmt::format("  late {}", look.whole.deadline_misses);
  // Frames with labels may be rare.
  const stream::Losses& losses = recent.losses.frames > 0 ? recent.losses : look.whole.losses;
  if (losses.frames > 0) text += fmt::format("  loss {:.4f}", losses.mean());
  if (losses.copied > 0) text += fmt::format(" (last frame: {:.4f})", losses.copied_mean());
  if (recent.losses.rebuilt > 0)
    text += fmt::format("  rebuilt loss {:.4f}", recent.losses.rebuilt_mean());
  if (losses.hits.labels > 0) text += fmt::format("  right {:.1f} %", 100 * accuracy(losses.hits));
  return text;
}

StreamView::StreamView(bool has_deadline)
    : has_deadline_(has_deadline),
      terminal_(isatty(STDERR_FILENO) == 1),
      recent_(terminal_ ? kTerminalWindow : kElsewhere),
      last_(std::chrono::steady_clock::now()) {}

void StreamView::show(const stream::StreamLook& look) {
  const stream::StreamNumbers recent = recent_.add(look.whole);
  const auto now = std::chrono::steady_clock::now();
  if (!look.is_last && shown_ && now - last_ < (terminal_ ? kTerminal : kElsewhere)) return;
  if (look.whole.processed == 0) return;
  last_ = now;
  shown_ = true;
  draw(look, recent);
}

void StreamView::draw(const stream::StreamLook& look, const stream::StreamNumbers& recent) {
  const std::string line = line_of(look, recent, has_deadline_);
  if (!terminal_) {
    std::cerr << line << std::endl;
    return;
  }
  std::string text;
  if (drawn_lines_ > 0) text += fmt::format("\x1b[{}A", drawn_lines_);
  text += "\x1b[2K" + line + "\n";
  int lines = 1;
  for (size_t s = 0; s < look.stages.size(); ++s, ++lines)
    text += "\x1b[2K" + stage_line(s, look.stages[s]) + "\n";
  text += "\x1b[0J";
  drawn_lines_ = lines;
  std::cerr << text << std::flush;
}

void StreamView::finish() { drawn_lines_ = 0; }

std::string stream_text(const StreamReport& report) {
  const stream::StreamSummary& s = report.summary;
  const stream::StreamNumbers& n = s.numbers;
  std::string text =
      fmt::format("{} of {}: {}\n", to_string(report.task), report.source, s.end.reason);
  text += fmt::format(
      "  frames         {} in, {} processed, {} dropped{}, {} waiting at the end{}\n",
      s.queue.frames_in, n.processed, s.queue.dropped,
      s.queue.frames_in > 0
          ? fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(s.queue.dropped) /
                                           static_cast<double>(s.queue.frames_in))
          : "",
      waiting(report), unpredicted(report) > 0 ? ", 1 at the beginning without one before it" : "");
  if (s.queue.source.announced > 0) {
    text += fmt::format("  announced      {}, {} could not be decoded\n",
                        report::plural(s.queue.source.announced, "frame"), s.queue.source.broken);
  }
  if (!s.queue.remarks.empty() && s.end.reason.find(s.queue.remarks) == std::string::npos)
    text += fmt::format("  source         {}\n", s.queue.remarks);
  text += fmt::format("  rate           {:.2f} frames/s over {}; {:.2f} predicted{}\n", n.fps,
                      format_duration(n.elapsed_ns), report.predicted_fps, wanted(report));
  const auto latency = [&](int64_t ns) { return n.processed > 0 ? format_duration(ns) : "-"; };
  text +=
      fmt::format("  latency        {} median, {} for 99 %, {} at most\n",
                  latency(n.latency_p50_ns), latency(n.latency_p99_ns), latency(n.latency_max_ns));
  if (report.deadline_ns > 0) {
    text += fmt::format("  deadline       {}: missed by {}\n", format_duration(report.deadline_ns),
                        report::plural(n.deadline_misses, "frame"));
  }
  const stream::Losses& losses = n.losses;
  if (losses.frames > 0) {
    text += fmt::format("  loss           {:.5f} (mean over {})\n", losses.mean(),
                        losses.frames == n.processed
                            ? "all frames"
                            : report::plural(losses.frames, "frame") + " with labels");
  }
  if (losses.copied > 0) {
    text += fmt::format("  copying        {:.5f} (the last frame as the prediction)\n",
                        losses.copied_mean());
  }
  if (losses.rebuilt > 0) {
    text += fmt::format("  rebuilt loss   {:.5f} (mean over {} without labels)\n",
                        losses.rebuilt_mean(), report::plural(losses.rebuilt, "frame"));
  }
  if (losses.hits.labels > 0) {
    text += fmt::format("  right          {:.2f} % of the labels, before learning from them\n",
                        100 * accuracy(losses.hits));
  }
  text += fmt::format(
      "  stages         {}{}\n", s.state.plan.stages.size(),
      s.replans > 0 ? fmt::format(", planned again {}", report::plural(s.replans, "time")) : "");
  return text;
}

std::string stream_json(const StreamReport& report) {
  const stream::StreamSummary& s = report.summary;
  const stream::StreamNumbers& n = s.numbers;
  Json stages = Json::array();
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const stream::StageTimes& stage = report.stages[i];
    Json entry{{"layers", i < s.state.plan.stages.size() ? Json(s.state.plan.stages[i].layers)
                                                         : Json(nullptr)},
               {"forward_ns", stage.forward_ns},
               {"backward_ns", stage.backward_ns},
               {"step_ns", stage.step_ns},
               {"hand_over_ns", stage.hand_over_ns},
               {"busy", stage.busy},
               {"device", i < report.devices.size() ? report.devices[i].str() : "cpu"}};
    stages.push_back(std::move(entry));
  }
  const auto known = [&](int64_t ns) { return n.processed > 0 ? Json(ns) : Json(nullptr); };
  const frames::SourceCounts& source = s.queue.source;
  const Json document{
      {"source", report.source},
      {"task", to_string(report.task)},
      {"strategy", to_string(s.state.plan.strategy)},
      {"weights", to_string(s.state.plan.weights)},
      {"frames_in", s.queue.frames_in},
      {"processed", n.processed},
      {"dropped", s.queue.dropped},
      {"waiting", waiting(report)},
      {"frames_announced", source.announced > 0 ? Json(source.announced) : Json(nullptr)},
      {"frames_broken", source.broken},
      {"frames_left_out", source.skipped},
      {"remarks", s.queue.remarks.empty() ? Json(nullptr) : Json(s.queue.remarks)},
      {"fps", n.fps},
      {"wanted_fps", report.wanted_fps > 0 ? Json(report.wanted_fps) : Json(nullptr)},
      {"predicted_fps", report.predicted_fps},
      {"latency_p50_ns", known(n.latency_p50_ns)},
      {"latency_p99_ns", known(n.latency_p99_ns)},
      {"latency_max_ns", known(n.latency_max_ns)},
      {"deadline_ns", report.deadline_ns > 0 ? Json(report.deadline_ns) : Json(nullptr)},
      {"deadline_misses", n.deadline_misses},
      {"loss", n.losses.frames > 0 ? Json(n.losses.mean()) : Json(nullptr)},
      {"copying_loss", n.losses.copied > 0 ? Json(n.losses.copied_mean()) : Json(nullptr)},
      {"rebuilt_loss", n.losses.rebuilt > 0 ? Json(n.losses.rebuilt_mean()) : Json(nullptr)},
      {"accuracy", n.losses.hits.labels > 0 ? Json(accuracy(n.losses.hits)) : Json(nullptr)},
      {"elapsed_ns", n.elapsed_ns},
      {"longest_stall_ns", s.queue.longest_stall_ns},
      {"replans", s.replans},
      {"steps", s.state.layers.empty() ? Json(nullptr) : Json(s.state.steps)},
      {"end", s.end.reason},
      {"error", report.error.empty() ? Json(nullptr) : Json(report.error)},
      {"stages", stages}};
  return document.dump() + "\n";
}

}  // namespace penstock::tool
