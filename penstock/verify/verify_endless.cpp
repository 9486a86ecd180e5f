#include "penstock/verify/verify_endless.h"

#include <fmt/format.h>

#include "penstock/schedule/formats/text_format.h"

namespace penstock::verify {

using schedule::Action;
using schedule::EndlessSchedule;
using schedule::Op;

namespace {

/// The action one period later.
Action later(Action action, const schedule::ScheduleShape& shape, int64_t periods) {
  if (has_micro_batch(action.op)) action.micro_batch.value += periods * shape.accumulate;
  action.mini_batch.value += periods;
  if (action.version.value >= 0) action.version.value += periods;
  return action;
}

/// Where the worker's first action of the mini-batch stands that makes weight gradients.
size_t first_backward(const std::vector<Action>& list, int64_t mini_batch) {
  size_t i = 0;
  while (i < list.size() &&
         !(makes_weight_gradients(list[i].op) && list[i].mini_batch.value >= mini_batch))
    ++i;
  return i;
}

}  // namespace

std::vector<Violation> verify_endless(const EndlessSchedule& endless, const Options& options) {
  std::vector<Violation> violations = verify(endless.sample, options);
  const schedule::ScheduleShape& shape = endless.sample.shape;
  const auto add = [&](WorkerId worker, const Action& action, std::string message) {
    if (static_cast<int64_t>(violations.size()) < options.max_violations)
      violations.push_back({"period", worker, schedule::to_text(action), std::move(message)});
  };
  for (size_t w = 0; w < endless.sample.workers.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    const std::vector<Action>& list = endless.sample.workers[w];
    // The first mini-batch whose backward comes when all of the fill has been seen: by then every
    // version in use has been made by a step.
    const int64_t settled = endless.fill / shape.accumulate;
    const int64_t in_flight = ceil_div(endless.lists.most_in_flight(), shape.accumulate);
    const int64_t from = std::max<int64_t>(settled - in_flight, 0);
    const size_t begin = first_backward(list, from);
    const size_t end = first_backward(list, from + 1);
    if (begin >= end || end >= list.size()) {
      violations.push_back({"period", worker, "", "its list has no period"});
      continue;
    }
    auto cursor = endless.lists.cursor(worker);
    Action action;
    size_t i = 0;
    for (; i < begin && endless.lists.next(cursor, action); ++i) {
      if (action == list[i]) continue;
      add(worker, action, fmt::format("the sample begins with {} here", to_text(list[i])));
      break;
    }
    if (i < begin) continue;
    const size_t length = end - begin;
    for (size_t k = 0; k < length * static_cast<size_t>(endless.num_periods); ++k) {
      const Action expected =
          later(list[begin + k % length], shape, static_cast<int64_t>(k / length));
      if (endless.lists.next(cursor, action) && action == expected) continue;
      add(worker, action,
          fmt::format("differs from the period before; expected {}", to_text(expected)));
      break;
    }
  }
  return violations;
}

}  // namespace penstock::verify
