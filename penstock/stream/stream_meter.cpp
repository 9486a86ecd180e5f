#include "penstock/stream/stream_meter.h"

#include <algorithm>

#include "penstock/util/process/steady_ns.h"

namespace penstock::stream {

using schedule::Op;

namespace {
constexpr size_t kNewest = 400;
}

void StreamMeter::begin(size_t stages) {
  MutexLock lock(mutex_);
  const int64_t now = steady_ns();
  if (whole_.begin_ns == 0) whole_.begin_ns = part_.begin_ns = now;
  stages_.clear();
  for (size_t s = 0; s < stages; ++s) {
    stages_.push_back(std::make_shared<Stage>());
    MutexLock stage_lock(stages_.back()->mutex);
    stages_.back()->begin_ns = now;
  }
}

void StreamMeter::on_action(WorkerId worker, const schedule::TimelineEvent& event) {
  std::shared_ptr<Stage> stage;
  {
    MutexLock lock(mutex_);
    stage = stages_[worker.index()];
  }
  const int64_t busy_ns = event.end_ns - event.start_ns - event.waiting_ns;
  MutexLock lock(stage->mutex);
  stage->busy_ns += busy_ns;
  const auto ns = static_cast<double>(busy_ns);
  if (event.action.op == Op::Forward) {
    stage->sums.forward_ns += ns;
  } else if (event.action.op == Op::Step) {
    stage->sums.step_ns += ns;
  } else if (is_message(event.action.op)) {
    stage->sums.hand_over_ns += ns;
  } else {
    stage->sums.backward_ns += ns;
    if (makes_weight_gradients(event.action.op)) ++stage->sums.frames;
  }
  if (stage->newest.size() == kNewest) stage->newest.pop_front();
  stage->newest.push_back(event);
}

void StreamMeter::add(Tally& tally, int64_t latency_ns, const Losses& losses, bool misses) {
  ++tally.processed;
  tally.latencies.add(latency_ns);
  tally.latency_max_ns = std::max(tally.latency_max_ns, latency_ns);
  if (misses) ++tally.deadline_misses;
  tally.losses += losses;
}

void StreamMeter::on_output(int64_t latency_ns, const Losses& losses) {
  const bool misses = deadline_ns_ > 0 && latency_ns > deadline_ns_;
  MutexLock lock(mutex_);
  add(whole_, latency_ns, losses, misses);
  add(part_, latency_ns, losses, misses);
}

int64_t StreamMeter::percentile(const Tally& tally, double share) {
  // A class of the histogram ends above the times in it.
  return std::min(tally.latencies.percentile(share), tally.latency_max_ns);
}

StreamNumbers StreamMeter::numbers_of(const Tally& tally) {
  StreamNumbers numbers{.elapsed_ns = tally.begin_ns == 0 ? 0 : steady_ns() - tally.begin_ns,
                        .processed = tally.processed,
                        .latency_p50_ns = percentile(tally, 0.5),
                        .latency_p99_ns = percentile(tally, 0.99),
                        .latency_max_ns = tally.latency_max_ns,
                        .deadline_misses = tally.deadline_misses,
                        .losses = tally.losses};
  if (numbers.elapsed_ns > 0) {
    numbers.fps =
        static_cast<double>(tally.processed) * 1e9 / static_cast<double>(numbers.elapsed_ns);
  }
  return numbers;
}

StreamNumbers StreamMeter::whole() const {
  MutexLock lock(mutex_);
  return numbers_of(whole_);
}

StreamNumbers StreamMeter::take_part() {
  MutexLock lock(mutex_);
  const StreamNumbers numbers = numbers_of(part_);
  part_ = {.begin_ns = steady_ns()};
  return numbers;
}

std::vector<StageTimes> StreamMeter::take_stages() {
  std::vector<std::shared_ptr<Stage>> stages;
  {
    MutexLock lock(mutex_);
    stages = stages_;
  }
  std::vector<StageTimes> times;
  const int64_t now = steady_ns();
  for (const auto& stage : stages) {
    MutexLock lock(stage->mutex);
    StageTimes mean = stage->sums;
    const auto frames = static_cast<double>(std::max<int64_t>(mean.frames, 1));
    for (double* sum : {&mean.forward_ns, &mean.backward_ns, &mean.step_ns, &mean.hand_over_ns})
      *sum /= frames;
    const int64_t elapsed_ns = now - stage->begin_ns;
    if (elapsed_ns > 0) {
      mean.busy = std::clamp(static_cast<double>(stage->busy_ns) / static_cast<double>(elapsed_ns),
                             0.0, 1.0);
    }
    times.push_back(mean);
    stage->sums = {};
    stage->busy_ns = 0;
    stage->begin_ns = now;
  }
  return times;
}

std::vector<std::vector<schedule::TimelineEvent>> StreamMeter::newest_actions() const {
  std::vector<std::shared_ptr<Stage>> stages;
  {
    MutexLock lock(mutex_);
    stages = stages_;
  }
  std::vector<std::vector<schedule::TimelineEvent>> actions;
  for (const auto& stage : stages) {
    MutexLock lock(stage->mutex);
    actions.emplace_back(stage->newest.begin(), stage->newest.end());
  }
  return actions;
}

}  // namespace penstock::stream
