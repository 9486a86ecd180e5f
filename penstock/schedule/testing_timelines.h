// For tests: timelines.
#pragma once

#include <string>
#include <vector>

#include "penstock/schedule/timeline.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::schedule {

inline TimelineEvent event_of(Op op, int stage, int64_t batch, int64_t start_ns, int64_t end_ns,
                              int64_t waiting_ns = 0) {
  TimelineEvent event{{op, StageId{stage}, MicroBatchId{batch}, MiniBatchId{0}, StageId{stage}},
                      start_ns,
                      end_ns,
                      waiting_ns};
  if (is_message(op)) event.action.peer = StageId{stage + 1};
  if (is_compute(op)) event.action.version = WeightVersion{0};
  return event;
}

/// Two workers with a stage each and two micro-batches: a forward takes 10 us, a backward
/// `backward_ns`; the second worker waits in between.
inline Timeline two_workers(const std::string& source, int64_t backward_ns = 20'000) {
  Timeline timeline{source, {{}, {}}};
  int64_t now = 0;
  for (int b = 0; b < 2; ++b, now += 10'000)
    timeline.workers[0].push_back(event_of(Op::Forward, 0, b, now, now + 10'000));
  now = 0;
  for (int b = 0; b < 2; ++b) {
    timeline.workers[1].push_back(
        event_of(Op::RecvForward, 1, b, now, b == 0 ? 11'000 : now, b == 0 ? 10'500 : 0));
    now = b == 0 ? 11'000 : now;
    timeline.workers[1].push_back(event_of(Op::Forward, 1, b, now, now + 10'000));
    timeline.workers[1].push_back(
        event_of(Op::Backward, 1, b, now + 10'000, now + 10'000 + backward_ns));
    now += 10'000 + backward_ns;
  }
  for (int b = 0; b < 2; ++b) {
    const int64_t begin = 50'000 + b * backward_ns;
    timeline.workers[0].push_back(event_of(Op::Backward, 0, b, begin, begin + backward_ns));
  }
  return timeline;
}

/// Any actions of `stages` stages one after the other, with gaps and waiting.
inline Timeline random_timeline(uint64_t seed, int workers, int stages, int actions) {
  Rng rng(seed);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(rng.below(bound)); };
  Timeline timeline{"random",
                    std::vector<std::vector<TimelineEvent>>(static_cast<size_t>(workers))};
  for (auto& events : timeline.workers) {
    int64_t now = below(1'000'000);
    for (int k = 0; k < actions; ++k) {
      const auto op = static_cast<Op>(below(static_cast<uint64_t>(Op::FreeWeights) + 1));
      const int64_t length = below(3) == 0 ? 0 : below(5'000'000);
      TimelineEvent event =
          event_of(op, static_cast<int>(below(static_cast<uint64_t>(stages))), 0, now, now + length,
                   length > 0 ? below(static_cast<uint64_t>(length) + 1) : 0);
      if (has_micro_batch(op)) event.action.micro_batch = MicroBatchId{below(300)};
      if (is_message(op))
        event.action.peer = StageId{static_cast<int32_t>(below(static_cast<uint64_t>(stages)))};
      event.action.mini_batch = MiniBatchId{below(5)};
      event.action.version = WeightVersion{below(4) - 1};
      event.action.with_next = op == Op::Forward && below(4) == 0;
      events.push_back(event);
      now += length + below(1000);
    }
  }
  return timeline;
}

}  // namespace penstock::schedule
