#include "penstock/schedule/orders/order_clock.h"

#include <algorithm>
#include <functional>

namespace penstock::schedule {
namespace {

/// What a run with events costs, in runs without, where many messages are under way.
constexpr int64_t kStepsOfSharedLinks = 8;

}  // namespace

OrderClock::OrderClock(const OrderProblem& problem) : problem_(&problem), wires_(problem) {
  const auto cells =
      static_cast<size_t>(problem.num_stages()) * static_cast<size_t>(problem.num_micro_batches);
  worker_of_.resize(cells);
  for (int32_t s = 0; s < problem.num_stages(); ++s) {
    for (int32_t b = 0; b < problem.num_micro_batches; ++b)
      worker_of_[cell(s, b)] = problem.stages[static_cast<size_t>(s)].worker_of(b);
  }
  const size_t all = cells * static_cast<size_t>(problem.repetitions);
  forward_there_.resize(all);
  input_there_.resize(all);
  if (wires_.are_used()) {
    messages_.resize(2 * all);
    waits_for_.resize(2 * all);
  }
  const auto workers = static_cast<size_t>(problem.num_workers);
  free_.resize(workers);
  may_run_.resize(workers);
  team_of_.assign(workers, -1);
  for (const OrderProblem::Stage& stage : problem.stages) {
    if (stage.finish == 0) continue;
    // Stages that share a worker have the same replicas.
    int32_t& first = team_of_[static_cast<size_t>(stage.workers.front())];
    if (first < 0) {
      first = static_cast<int32_t>(teams_.size());
      teams_.push_back({.workers = stage.workers});
      for (const int32_t worker : stage.workers) team_of_[static_cast<size_t>(worker)] = first;
    }
    teams_[static_cast<size_t>(first)].finish += stage.finish;
  }
  position_.resize(workers);
  starts_.resize(workers);
  left_.resize(workers);
  left_data_.resize(workers);
  way_back_ = ways_back();
}

std::vector<int64_t> OrderClock::ways_back() const {
  std::vector<int64_t> ways(free_.size(), std::numeric_limits<int64_t>::max());
  int64_t way = 0;
  for (int32_t s = 0; s < problem_->num_stages(); ++s) {
    const OrderProblem::Stage& stage = problem_->stages[static_cast<size_t>(s)];
    if (s == 0) {
      way = stage.weight + finish_of(static_cast<size_t>(stage.workers.front()));
    } else {
      const OrderProblem::Stage& to = problem_->stages[static_cast<size_t>(s) - 1];
      const bool is_local =
          std::find_first_of(stage.workers.begin(), stage.workers.end(), to.workers.begin(),
                             to.workers.end()) != stage.workers.end();
      way += to.input - to.again + (is_local ? 0 : wires_.least_time(s - 1));
    }
    for (const int32_t w : stage.workers)
      ways[static_cast<size_t>(w)] = std::min(ways[static_cast<size_t>(w)], way);
  }
  return ways;
}

void OrderClock::count_work(const Order& order) {
  ends_ = 0;
  for (size_t w = 0; w < order.size(); ++w) {
    int64_t all = 0;
    int64_t weights = 0;
    for (const OrderStep& step : order[w]) {
      all += time_of(step);
      if (step.op == Op::BackwardWeight) weights += time_of(step);
    }
    const int64_t finish = order[w].empty() ? 0 : finish_of(w);
    left_[w] = problem_->repetitions * (all + finish);
    left_data_[w] = order[w].empty() ? 0 : left_[w] - weights - finish + way_back_[w];
    ends_ += left_[w];
  }
}

void OrderClock::hand_on(const OrderStep& step, int32_t worker, size_t before, int64_t end) {
  const bool forward = step.op == Op::Forward;
  std::vector<int64_t>& there = forward ? forward_there_ : input_there_;
  const size_t at = before + cell(step.stage, step.micro_batch);
  there[at] = end;
  const int32_t next = step.stage + (forward ? 1 : -1);
  if (next < 0 || next == problem_->num_stages()) return;
  const int32_t other = worker_of_[cell(next, step.micro_batch)];
  if (other == worker) return;
  const int32_t link = std::min(step.stage, next);
  if (!wires_.occupies(link)) {
    there[at] = end + problem_->stages[static_cast<size_t>(link)].message;
    awake_.push_back(other);
    return;
  }
  there[at] = kUnderWay;
  send(forward ? at : there.size() + at, link, worker, other, end);
}

void OrderClock::send(size_t id, int32_t link, int32_t sender, int32_t receiver, int64_t now) {
  // Field by field, here and below: to read a struct just written in parts is slow.
  OrderWires::Message& message = messages_[id];
  message.link = link;
  message.sender = sender;
  message.receiver = receiver;
  message.hop = 0;
  message.end = 0;
  waits_for_[id] = OrderWires::kNobody;
  const uint64_t rank = Event::kHasNotWaited | static_cast<uint64_t>(sender) << 32 | sent_++;
  add_event(now, rank, static_cast<int32_t>(id));
}

void OrderClock::add_event(int64_t time, uint64_t rank, int32_t id) {
  size_t at = events_.size();
  events_.emplace_back();
  while (at > 0 && events_[(at - 1) / 2].is_after(time, rank)) {
    events_[at] = events_[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  events_[at].time = time;
  events_[at].rank = rank;
  events_[at].id = id;
}

void OrderClock::next_event() {
  const int64_t now = events_.front().time;
  const uint64_t rank = events_.front().rank;
  const int32_t number = events_.front().id;
  std::pop_heap(events_.begin(), events_.end(), std::greater<>());
  events_.pop_back();
  const auto id = static_cast<size_t>(number);
  OrderWires::Message& message = messages_[id];
  int64_t when = 0;
  if (!wires_.advance(message, number, now, when, waits_for_[id])) {
    add_event(when, rank & ~Event::kHasNotWaited, number);
    return;
  }
  const size_t all = forward_there_.size();
  (id < all ? forward_there_[id] : input_there_[id - all]) = when;
  awake_.push_back(message.receiver);
}

bool OrderClock::finish(int32_t worker, int64_t now) {
  const int32_t number = team_of_[static_cast<size_t>(worker)];
  if (number < 0) {
    ++may_run_[static_cast<size_t>(worker)];
    return true;
  }
  Team& team = teams_[static_cast<size_t>(number)];
  team.last = std::max(team.last, now);
  if (++team.here < team.expected) return false;
  for (const int32_t member : team.workers) {
    const auto m = static_cast<size_t>(member);
    const int64_t counted = left_[m] > 0 ? team.finish : 0;
    ends_ += team.last + team.finish - counted - free_[m];
    left_[m] -= counted;
    left_data_[m] -= counted;
    free_[m] = team.last + team.finish;
    ++may_run_[m];
    if (member != worker) awake_.push_back(member);
  }
  team.here = 0;
  return true;
}

void OrderClock::go_on(const Order& order, int32_t worker) {
  const auto w = static_cast<size_t>(worker);
  const std::vector<OrderStep>& list = order[w];
  if (position_[w] == list.size() * static_cast<size_t>(problem_->repetitions)) return;
  const size_t last_repetition = static_cast<size_t>(problem_->repetitions) - 1;
  size_t repetition = position_[w] / list.size();
  if (repetition == may_run_[w]) return;  // waits for its team
  size_t at = position_[w] - repetition * list.size();
  size_t before = repetition * worker_of_.size();
  int64_t free = free_[w];
  std::vector<int64_t>& starts = starts_[w];
  for (;; ++at) {
    if (at == list.size()) {
      free_[w] = free;
      const bool goes_on = finish(worker, free);
      free = free_[w];
      if (repetition == last_repetition || !goes_on) break;
      ++repetition;
      before += worker_of_.size();
      at = 0;
    }
    const OrderStep& step = list[at];
    const int64_t there = ready(step, before);
    if (there == kNotYet) break;
    const int64_t start = std::max(there, free);
    if (start > free) {
      idle(w, free, start);
      if (is_hopeless_) return;
    }
    starts[at] = start;  // the last repetition's stay
    const int64_t time = time_of(step);
    free = start + time;
    left_[w] -= time;
    if (step.op != Op::BackwardWeight || repetition != last_repetition) left_data_[w] -= time;
    if (step.op != Op::BackwardWeight) hand_on(step, worker, before, free);
  }
  free_[w] = free;
  position_[w] = repetition * list.size() + at;
}

void OrderClock::wake_all(const Order& order) {
  while (!awake_.empty() && !is_hopeless_) {
    const int32_t worker = awake_.back();
    awake_.pop_back();
    go_on(order, worker);
  }
}

OrderTime OrderClock::run(const Order& order, const OrderTime& best) {
  std::fill(forward_there_.begin(), forward_there_.end(), kNotYet);
  std::fill(input_there_.begin(), input_there_.end(), kNotYet);
  std::fill(free_.begin(), free_.end(), 0);
  std::fill(position_.begin(), position_.end(), 0);
  std::fill(may_run_.begin(), may_run_.end(), 1);
  for (Team& team : teams_) {
    team.here = 0;
    team.last = 0;
    team.expected =
        static_cast<size_t>(std::count_if(team.workers.begin(), team.workers.end(), [&](int32_t w) {
          return !order[static_cast<size_t>(w)].empty();
        }));
  }
  wires_.clear();
  events_.clear();
  sent_ = 0;
  awake_.clear();
  size_t steps = 0;
  for (size_t w = 0; w < order.size(); ++w) {
    starts_[w].resize(order[w].size());
    steps += order[w].size() * static_cast<size_t>(problem_->repetitions);
    awake_.push_back(static_cast<int32_t>(w));
  }
  steps_run_ += static_cast<int64_t>(steps) * (wires_.are_used() ? kStepsOfSharedLinks : 1);
  best_ = best;
  reaches_best_ = false;
  is_hopeless_ = false;
  count_work(order);
  wake_all(order);
  while (!events_.empty() && !is_hopeless_) {
    next_event();
    wake_all(order);
  }
  if (is_hopeless_) return {};
  for (size_t w = 0; w < order.size(); ++w) {
    if (position_[w] < order[w].size() * static_cast<size_t>(problem_->repetitions)) return {};
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
  const size_t before = forward_there_.size() - worker_of_.size();
  size_t at = order[w].size() - 1;
  // Messages that wait for each other can lead back to a step that the path has been at.
  std::vector<bool> met(2 * worker_of_.size());
  while (true) {
    CriticalRun run{.worker = static_cast<int32_t>(w), .first = at, .last = at};
    // Back along the worker while each step starts when the one before ends.
    while (at > 0 && starts_[w][at - 1] + time_of(order[w][at - 1]) == starts_[w][at]) --at;
    run.first = at;
    runs.push_back(run);
    const OrderStep step = order[w][at];
    if (at == 0 && starts_[w][at] != ready(step, before)) return runs;  // the repetition before
    const int32_t from = step.stage + (step.op == Op::Forward ? -1 : 1);
    if (step.op == Op::BackwardWeight || from < 0 || from == problem_->num_stages()) return runs;
    if (static_cast<size_t>(worker_of_[cell(from, step.micro_batch)]) == w) return runs;
    const std::optional<OrderStep> wanted = cause_of({step.op, from, step.micro_batch});
    if (!wanted) return runs;
    const size_t cause = cell(wanted->stage, wanted->micro_batch);
    const size_t number = cause + (wanted->op == Op::Forward ? 0 : worker_of_.size());
    if (met[number]) return runs;
    met[number] = true;
    const auto other = static_cast<size_t>(worker_of_[cause]);
    const auto found = std::find(order[other].begin(), order[other].end(), *wanted);
    if (found == order[other].end()) return runs;
    w = other;
    at = static_cast<size_t>(found - order[other].begin());
  }
}

std::optional<OrderStep> OrderClock::cause_of(const OrderStep& sent) const {
  if (!wires_.are_used() || !wires_.occupies(sent.stage - (sent.op == Op::Forward ? 0 : 1)))
    return sent;
  const size_t cells = worker_of_.size();
  const size_t all = forward_there_.size();
  const size_t first = all - cells;  // of the last repetition
  size_t id = first + cell(sent.stage, sent.micro_batch) + (sent.op == Op::Forward ? 0 : all);
  // On several levels two messages may wait for each other, each at another link.
  constexpr int kMostWaits = 64;
  for (int i = 0; i < kMostWaits && waits_for_[id] != OrderWires::kNobody; ++i)
    id = static_cast<size_t>(waits_for_[id]);
  const Op op = id < all ? Op::Forward : Op::BackwardInput;
  const size_t place = id < all ? id : id - all;
  if (place < first) return std::nullopt;
  const auto micro_batches = static_cast<size_t>(problem_->num_micro_batches);
  return OrderStep{op, static_cast<int32_t>((place - first) / micro_batches),
                   static_cast<int32_t>((place - first) % micro_batches)};
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
  std::vector<int64_t> work(workers);  // of one repetition
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
    for (const int32_t w : stage.workers) work[static_cast<size_t>(w)] += stage.finish;
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
    back += stage.input - stage.again + (local ? 0 : stage.message);
  }
  for (size_t w = 0; w < workers; ++w) {
    if (head[w] < std::numeric_limits<int64_t>::max())
      least = std::max(least, head[w] + problem.repetitions * work[w]);
  }
  return problem.num_micro_batches == 0 ? 0 : least;
}

}  // namespace penstock::schedule
