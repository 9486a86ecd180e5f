#include "penstock/schedule/orders/order_clock.h"

#include <algorithm>

namespace penstock::schedule {
namespace {

constexpr int64_t kNotYet = -1;

}  // namespace

OrderClock::OrderClock(const OrderProblem& problem) : problem_(&problem) {
  const auto cells =
      static_cast<size_t>(problem.num_stages()) * static_cast<size_t>(problem.num_micro_batches);
  worker_of_.resize(cells);
  for (int32_t s = 0; s < problem.num_stages(); ++s) {
    for (int32_t b = 0; b < problem.num_micro_batches; ++b)
      worker_of_[cell(s, b)] = problem.stages[static_cast<size_t>(s)].worker_of(b);
  }
  forward_end_.resize(cells);
  input_end_.resize(cells);
  const auto workers = static_cast<size_t>(problem.num_workers);
  free_.resize(workers);
  position_.resize(workers);
  starts_.resize(workers);
}

int64_t OrderClock::time_of(const OrderStep& step) const {
  const OrderProblem::Stage& stage = problem_->stages[static_cast<size_t>(step.stage)];
  if (step.op == Op::Forward) return stage.forward;
  return step.op == Op::BackwardInput ? stage.input : stage.weight;
}

int64_t OrderClock::ready(const OrderStep& step) const {
  const size_t own = cell(step.stage, step.micro_batch);
  if (step.op == Op::BackwardWeight) return input_end_[own];
  const auto through = [&](int64_t end, int32_t other, int32_t link) {
    if (end == kNotYet) return kNotYet;
    const bool local = worker_of_[cell(other, step.micro_batch)] == worker_of_[own];
    return local ? end : end + problem_->stages[static_cast<size_t>(link)].message;
  };
  if (step.op == Op::Forward) {
    if (step.stage == 0) return 0;
    const int32_t before = step.stage - 1;
    return through(forward_end_[cell(before, step.micro_batch)], before, before);
  }
  if (forward_end_[own] == kNotYet) return kNotYet;
  if (step.stage + 1 == problem_->num_stages()) return forward_end_[own];
  const int32_t after = step.stage + 1;
  return through(input_end_[cell(after, step.micro_batch)], after, step.stage);
}

bool OrderClock::run_once(const Order& order) {
  std::fill(forward_end_.begin(), forward_end_.end(), kNotYet);
  std::fill(input_end_.begin(), input_end_.end(), kNotYet);
  size_t left = 0;
  awake_.clear();
  for (size_t w = 0; w < order.size(); ++w) {
    position_[w] = 0;
    starts_[w].resize(order[w].size());
    left += order[w].size();
    awake_.push_back(static_cast<int32_t>(w));
  }
  steps_run_ += static_cast<int64_t>(left);
  while (!awake_.empty()) {
    const auto w = static_cast<size_t>(awake_.back());
    awake_.pop_back();
    const std::vector<OrderStep>& list = order[w];
    while (position_[w] < list.size()) {
      const OrderStep& step = list[position_[w]];
      const int64_t at = ready(step);
      if (at == kNotYet) break;
      const int64_t start = std::max(at, free_[w]);
      starts_[w][position_[w]++] = start;
      free_[w] = start + time_of(step);
      --left;
      if (step.op == Op::BackwardWeight) continue;
      const size_t own = cell(step.stage, step.micro_batch);
      (step.op == Op::Forward ? forward_end_ : input_end_)[own] = free_[w];
      const int32_t next = step.stage + (step.op == Op::Forward ? 1 : -1);
      if (next < 0 || next == problem_->num_stages()) continue;
      const int32_t other = worker_of_[cell(next, step.micro_batch)];
      if (static_cast<size_t>(other) != w) awake_.push_back(other);
    }
  }
  return left == 0;
}

OrderTime OrderClock::run(const Order& order) {
  std::fill(free_.begin(), free_.end(), 0);
  for (int i = 0; i < problem_->repetitions; ++i) {
    if (!run_once(order)) return {};
  }
  OrderTime time{.end = 0, .ends = 0};
  for (const int64_t end : free_) {
    time.end = std::max(time.end, end);
    time.ends += end;
  }
  return time;
}

std::vector<CriticalRun> OrderClock::critical_runs(const Order& order) const {
  std::vector<CriticalRun> runs;
  auto w = static_cast<size_t>(std::max_element(free_.begin(), free_.end()) - free_.begin());
  if (order[w].empty()) return runs;
  size_t at = order[w].size() - 1;
  while (true) {
    CriticalRun run{.worker = static_cast<int32_t>(w), .first = at, .last = at};
    // Back along the worker while each step starts when the one before ends.
    while (at > 0 && starts_[w][at - 1] + time_of(order[w][at - 1]) == starts_[w][at]) --at;
    run.first = at;
    runs.push_back(run);
    const OrderStep step = order[w][at];
    if (at == 0 && starts_[w][at] != ready(step)) return runs;  // from the repetition before
    const int32_t from = step.stage + (step.op == Op::Forward ? -1 : 1);
    if (step.op == Op::BackwardWeight || from < 0 || from == problem_->num_stages()) return runs;
    const auto other = static_cast<size_t>(worker_of_[cell(from, step.micro_batch)]);
    if (other == w) return runs;
    const OrderStep wanted{step.op, from, step.micro_batch};
    const auto found = std::find(order[other].begin(), order[other].end(), wanted);
    if (found == order[other].end()) return runs;
    w = other;
    at = static_cast<size_t>(found - order[other].begin());
  }
}

bool fits(const OrderProblem& problem, int32_t worker, const std::vector<OrderStep>& steps) {
  int64_t kept = 0;
  for (const OrderStep& step : steps) {
    if (step.op == Op::Forward && ++kept > problem.most_kept[static_cast<size_t>(worker)])
      return false;
    if (step.op == Op::BackwardWeight) --kept;
  }
  return true;
}

int64_t least_time(const OrderProblem& problem) {
  const auto workers = static_cast<size_t>(problem.num_workers);
  std::vector<int64_t> work(workers);
  std::vector<int64_t> head(workers, std::numeric_limits<int64_t>::max());
  int64_t there = 0;  // when data can reach the stage
  int64_t back = 0;   // from the end of the stage's I to that of stage 0
  int64_t least = 0;
  for (int32_t s = 0; s < problem.num_stages(); ++s) {
    const OrderProblem::Stage& stage = problem.stages[static_cast<size_t>(s)];
    for (int32_t b = 0; b < problem.num_micro_batches; ++b) {
      const auto w = static_cast<size_t>(stage.worker_of(b));
      work[w] += stage.forward + stage.input + stage.weight;
      head[w] = std::min(head[w], there);
    }
    // All forwards and gradients of a replica, then the last gradient goes back to stage 0.
    const auto own = problem.num_micro_batches / static_cast<int64_t>(stage.workers.size());
    least = std::max(least, there + std::max<int64_t>(own, 1) * (stage.forward + stage.input) +
                                back + problem.stages.front().weight);
    if (s + 1 == problem.num_stages()) break;
    const OrderProblem::Stage& next = problem.stages[static_cast<size_t>(s) + 1];
    const bool local =
        std::find_first_of(stage.workers.begin(), stage.workers.end(), next.workers.begin(),
                           next.workers.end()) != stage.workers.end();
    there += stage.forward + (local ? 0 : stage.message);
    back += stage.input + (local ? 0 : stage.message);
  }
  for (size_t w = 0; w < workers; ++w) {
    if (work[w] > 0) least = std::max(least, head[w] + problem.repetitions * work[w]);
  }
  return problem.num_micro_batches == 0 ? 0 : least;
}

}  // namespace penstock::schedule
