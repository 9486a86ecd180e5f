#include "penstock/report/timeline/unit_time.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace penstock::report {

using schedule::Action;
using schedule::Op;
using schedule::Schedule;
using schedule::Timeline;
using schedule::TimelineEvent;

namespace {

class UnitTime {
 public:
  UnitTime(const Schedule& schedule, int64_t horizon) : schedule_(schedule), horizon_(horizon) {}

  Timeline run() {
    Timeline timeline{"unit time", {}};
    timeline.workers.resize(schedule_.workers.size());
    std::vector<size_t> next(schedule_.workers.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t w = 0; w < next.size(); ++w) {
        while (next[w] < schedule_.workers[w].size() &&
               step(schedule_.workers[w][next[w]], timeline.workers[w])) {
          ++next[w];
          progress = true;
        }
      }
    }
    return timeline;
  }

 private:
  bool step(const Action& action, std::vector<TimelineEvent>& events) {
    if (!is_compute(action.op)) return true;
    const auto ready = ready_at(action);
    const int64_t start =
        std::max(ready.value_or(horizon_), events.empty() ? 0 : events.back().end_ns);
    if (start >= horizon_) return false;
    const int64_t end = start + (action.op == Op::Backward ? 2 : 1);
    events.push_back({action, start, end, 0});
    ends_[{made_by(action.op), action.stage.value, action.micro_batch.value}] = end;
    return true;
  }

  /// B and I count as one: they make the same thing, the gradients of the inputs.
  static Op made_by(Op op) { return op == Op::BackwardInput ? Op::Backward : op; }

  std::optional<int64_t> ready_at(const Action& action) const {
    int64_t ready = 0;
    const auto wait_for = [&](Op op, int32_t stage) {
      const auto found = ends_.find({op, stage, action.micro_batch.value});
      if (found == ends_.end()) return false;
      ready = std::max(ready, found->second);
      return true;
    };
    const int32_t stage = action.stage.value;
    const bool is_last = stage >= schedule_.shape.num_stages() - 1;
    bool possible = true;
    if (action.op == Op::Forward) {
      possible = stage == 0 || wait_for(Op::Forward, stage - 1);
    } else if (action.op == Op::BackwardWeight) {
      possible = wait_for(Op::Backward, stage);
    } else {
      possible = wait_for(Op::Forward, stage);
      if (makes_input_gradients(action.op) && !is_last)
        possible = possible && wait_for(Op::Backward, stage + 1);
    }
    return possible ? std::optional(ready) : std::nullopt;
  }

  const Schedule& schedule_;
  const int64_t horizon_;
  std::map<std::tuple<Op, int32_t, int64_t>, int64_t> ends_;
};

}  // namespace

Timeline unit_timeline(const Schedule& schedule, int64_t horizon) {
  return UnitTime(schedule, horizon).run();
}

}  // namespace penstock::report
