#include "penstock/stream/recent_stages.h"

#include <algorithm>

namespace penstock::stream {

namespace {

constexpr size_t kLooks = 9;
constexpr int64_t kFrames = 20;

int64_t frames_of(const std::deque<StageTimes>& looks) {
  int64_t frames = 0;
  for (const StageTimes& look : looks) frames += look.frames;
  return frames;
}

/// Of an even number of looks the lower one.
double median(const std::deque<StageTimes>& looks, double StageTimes::*time) {
  if (looks.empty()) return 0;
  std::vector<double> times;
  for (const StageTimes& look : looks) times.push_back(look.*time);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

void RecentStages::add(const std::vector<StageTimes>& look) {
  if (stages_.size() != look.size()) stages_.assign(look.size(), {});
  for (size_t s = 0; s < look.size(); ++s) {
    if (look[s].frames == 0) continue;
    std::deque<StageTimes>& looks = stages_[s];
    looks.push_back(look[s]);
    while (looks.size() > kLooks && frames_of(looks) - looks.front().frames >= kFrames)
      looks.pop_front();
  }
}

std::vector<StageTimes> RecentStages::medians() const {
  std::vector<StageTimes> medians;
  for (const std::deque<StageTimes>& looks : stages_) {
    medians.push_back({.frames = frames_of(looks),
                       .forward_ns = median(looks, &StageTimes::forward_ns),
                       .backward_ns = median(looks, &StageTimes::backward_ns),
                       .step_ns = median(looks, &StageTimes::step_ns),
                       .hand_over_ns = median(looks, &StageTimes::hand_over_ns),
                       .busy = median(looks, &StageTimes::busy)});
  }
  return medians;
}

int64_t RecentStages::looks() const {
  size_t fewest = stages_.empty() ? 0 : stages_.front().size();
  for (const std::deque<StageTimes>& looks : stages_) fewest = std::min(fewest, looks.size());
  return static_cast<int64_t>(fewest);
}

}  // namespace penstock::stream
