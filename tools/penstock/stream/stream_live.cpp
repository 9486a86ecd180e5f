#include "tools/penstock/stream/stream_live.h"

#include <fmt/format.h>

#include <utility>

#include "penstock/report/text/text.h"
#include "penstock/schedule/action.h"
#include "penstock/util/files/json.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::tool {

namespace {

constexpr size_t kMostPoints = 400;
/// Of a timeline; the page shows about as much.
constexpr int64_t kShown_ns = 2'000'000'000;

std::string layers_of(const plan::Stage& stage) {
  if (stage.layers.size() < 2) return stage.layers.empty() ? "" : stage.layers.front();
  return fmt::format("{} to {}", stage.layers.front(), stage.layers.back());
}

Json stages_json(const plan::Plan& plan, const std::vector<stream::StageTimes>& times) {
  Json stages = Json::array();
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    Json stage{{"name", fmt::format("stage {}", s)}, {"layers", layers_of(plan.stages[s])}};
    if (s < times.size() && times[s].frames > 0) {
      stage["busy"] = times[s].busy;
      stage["forward_ns"] = times[s].forward_ns;
      stage["backward_ns"] = times[s].backward_ns;
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

Json copying_loss(const stream::Losses& losses) {
  return losses.copied > 0 ? Json(losses.copied_mean()) : Json(nullptr);
}

/// The colours of the output's classes; none where it has no pictures of classes.
Json classes_json(const StreamLiveTexts& texts) {
  Json classes = Json::array();
  if (texts.task != frames::Task::Pixels) return classes;
  for (int c = 0; c < texts.classes; ++c) {
    const auto colour = stream::class_colour(c);
    classes.push_back(
        {{"name", c == 0 ? std::string("0, background") : fmt::to_string(c)},
         {"colour", fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2])}});
  }
  return classes;
}

}  // namespace

StreamLive::StreamLive(const stream::OnlineLoop& loop, StreamLiveTexts texts)
    : loop_(loop), texts_(std::move(texts)), begin_ns_(steady_ns()) {}

void StreamLive::add(const stream::StreamLook& look) {
  MutexLock lock(mutex_);
  // A look that saw no frame, as the last one may be, would show zeros.
  stream::StreamLook kept = look;
  if (kept.part.processed == 0) {
    kept.part = look_.part;
    kept.stages = look_.stages;
  } else {
    const stream::StreamNumbers recent = recent_.add(look.whole);
    kept.part.fps = recent.fps;
    kept.part.losses = recent.losses.frames > 0 ? recent.losses : look.whole.losses;
  }
  look_ = std::move(kept);
  const int64_t now = steady_ns() - begin_ns_;
  if (look.part.processed == 0 ||
      (!history_.empty() && now - history_.back().time_ns < between_points_ns_))
    return;
  history_.push_back({now, look_.part, look.queue.dropped});
  if (history_.size() < kMostPoints) return;
  // Half of them, and half as many from now on.
  for (size_t i = 0; i < history_.size() / 2; ++i) history_[i] = history_[2 * i];
  history_.resize(history_.size() / 2);
  between_points_ns_ = 2 * (now - history_.front().time_ns) / static_cast<int64_t>(kMostPoints);
}

void StreamLive::end(const std::string& reason) {
  MutexLock lock(mutex_);
  ended_ = true;
  message_ = reason;
}

std::string StreamLive::state() const {
  const plan::Plan plan = loop_.plan();
  const int64_t now = steady_ns();
  Json workers = Json::array();
  for (const auto& actions : loop_.meter().newest_actions()) {
    Json lane = Json::array();
    for (const schedule::TimelineEvent& event : actions) {
      if (event.end_ns < now - kShown_ns) continue;
      lane.push_back({{"op", to_string(event.action.op)},
                      {"frame", event.action.micro_batch.value},
                      {"start_ns", event.start_ns + event.waiting_ns - begin_ns_},
                      {"end_ns", event.end_ns - begin_ns_}});
    }
    workers.push_back(std::move(lane));
  }
  MutexLock lock(mutex_);
  Json history = Json::array();
  for (const Point& point : history_) {
    history.push_back({{"time_ns", point.time_ns},
                       {"fps", point.numbers.fps},
                       {"loss", point.numbers.losses.mean()},
                       {"copying_loss", copying_loss(point.numbers.losses)},
                       {"latency_p50_ns", point.numbers.latency_p50_ns},
                       {"latency_p99_ns", point.numbers.latency_p99_ns},
                       {"dropped", point.dropped}});
  }
  const bool has_frames = look_.whole.processed > 0;
  const auto known = [&](auto value) { return has_frames ? Json(value) : Json(nullptr); };
  const stream::Losses& losses = look_.part.losses;
  const stream::Hits& hits = losses.hits;
  const Json document{
      {"title", texts_.title},
      {"source", texts_.source},
      {"task", to_string(texts_.task)},
      {"classes", classes_json(texts_)},
      {"plan", report::plural(std::ssize(plan.stages), "stage")},
      {"elapsed_ns", now - begin_ns_},
      {"frames_in", look_.queue.frames_in},
      {"processed", look_.whole.processed},
      {"dropped", look_.queue.dropped},
      {"fps", known(look_.part.fps)},
      {"wanted_fps", texts_.wanted_fps > 0 ? Json(texts_.wanted_fps) : Json(nullptr)},
      {"latency_p50_ns", known(look_.part.latency_p50_ns)},
      {"latency_p99_ns", known(look_.part.latency_p99_ns)},
      {"deadline_misses", look_.whole.deadline_misses},
      {"loss", losses.frames > 0 ? Json(losses.mean()) : Json(nullptr)},
      {"copying_loss", copying_loss(losses)},
      {"rebuilt_loss", losses.rebuilt > 0 ? Json(losses.rebuilt_mean()) : Json(nullptr)},
      {"accuracy", hits.labels > 0
                       ? Json(static_cast<double>(hits.hits) / static_cast<double>(hits.labels))
                       : Json(nullptr)},
      {"ended", ended_},
      {"message", message_},
      {"stages", stages_json(plan, look_.stages)},
      {"history", history},
      {"timeline", {{"now_ns", now - begin_ns_}, {"workers", workers}}}};
  return document.dump();
}

live::Picture StreamLive::input() const {
  frames::Frame frame = loop_.feed().newest();
  if (frame.number < 0) return {};
  return {.width = frame.size.width,
          .height = frame.size.height,
          .channels = frame.size.channels,
          .pixels = std::move(frame.pixels),
          .frame = frame.number};
}

live::Picture StreamLive::output() const {
  stream::FrameLoss::Picture picture = loop_.loss().newest();
  return {.width = static_cast<int>(picture.width),
          .height = static_cast<int>(picture.height),
          .channels = picture.channels,
          .pixels = std::move(picture.pixels),
          .frame = picture.frame};
}

}  // namespace penstock::tool
