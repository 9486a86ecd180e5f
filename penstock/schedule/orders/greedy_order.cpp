#include "penstock/schedule/orders/greedy_order.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>

#include "penstock/schedule/orders/order_wires.h"

namespace penstock::schedule {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class GreedyRun {
 public:
  GreedyRun(const OrderProblem& problem, const GreedyRules& rules, KeptRange& range)
      : problem_(problem),
        rules_(rules),
        range_(range),
        wires_(problem),
        workers_(static_cast<size_t>(problem.num_workers)) {
    for (int32_t s = 0; s < problem.num_stages(); ++s) {
      const OrderProblem::Stage& stage = problem.stages[static_cast<size_t>(s)];
      for (const int32_t w : stage.workers) {
        Held held{.stage = s};
        held.lead = lead_of(s);
        workers_[static_cast<size_t>(w)].held.push_back(std::move(held));
      }
    }
    for (int32_t b = 0; b < problem.num_micro_batches; ++b) {
      held_of(0, b).forwards.push_back({b, 0});
      for (const OrderProblem::Stage& stage : problem.stages) {
        Worker& worker = workers_[static_cast<size_t>(stage.worker_of(b))];
        worker.steps_left += 3;
        worker.work_left += stage.forward + stage.input + stage.weight;
        left_ += 3;
      }
    }
    const size_t leaves = std::bit_ceil(std::max<size_t>(workers_.size(), 2));
    tree_.resize(2 * leaves);
    for (size_t w = 0; w < leaves; ++w) tree_[leaves + w] = w;
    for (size_t node = leaves - 1; node >= 1; --node) tree_[node] = tree_[2 * node];
    for (Worker& worker : workers_)
      worker.later_work = (problem.repetitions - 1) * worker.work_left;
  }

  Order run(int64_t bound) {
    Order order(workers_.size());
    for (size_t w = 0; w < workers_.size(); ++w) {
      order[w].reserve(static_cast<size_t>(workers_[w].steps_left));
      choose_again(w);
    }
    while (left_ > 0) {
      const size_t first = tree_[1];
      Worker& worker = workers_[first];
      if (worker.choice.start > bound - worker.work_left - worker.later_work) return {};
      order[first].push_back(take(first, worker.choice));
      choose_again(first);
    }
    return order;
  }

 private:
  struct Arrival {
    int32_t micro_batch = 0;
    int64_t time = 0;
  };
  /// A stage on a worker.
  struct Held {
    int32_t stage = 0;
    int64_t lead = 0;
    int64_t ahead = 0;  ///< forwards without I
    int64_t kept = 0;   ///< forwards without W
    std::deque<Arrival> forwards = {};
    std::deque<Arrival> inputs = {};
  };
  struct Choice {
    int64_t start = kNever;
    Op op = Op::Forward;
    size_t held = 0;
  };
  struct Worker {
    int64_t free = 0;
    int64_t kept = 0;
    int64_t steps_left = 0;
    int64_t work_left = 0;        ///< of this repetition
    int64_t later_work = 0;       ///< of the later ones
    std::vector<Held> held = {};  ///< ascending
    std::deque<OrderStep> weights = {};
    Choice choice = {};
  };

  int64_t lead_of(int32_t stage) const {
    const int64_t after = problem_.num_stages() - 1 - stage;
    return 1 + (after * rules_.lead_percent + 99) / 100;
  }
  Held& held_of(int32_t stage, int32_t micro_batch) {
    Worker& worker = workers_[static_cast<size_t>(
        problem_.stages[static_cast<size_t>(stage)].worker_of(micro_batch))];
    for (Held& held : worker.held) {
      if (held.stage == stage) return held;
    }
    return worker.held.front();
  }

  /// A stage before the worker's last leaves room for each of the later ones: the oldest
  /// micro-batch always gets through.
  bool may_forward(const Worker& worker, size_t w, size_t h) const {
    const auto later = static_cast<int64_t>(worker.held.size() - 1 - h);
    const int64_t most = problem_.most_kept[w];
    if (worker.held[h].ahead >= worker.held[h].lead) return false;
    if (!range_.allows(w, worker.kept + 1 + later, most)) return false;
    if (later == 0 || worker.held[h].kept == 0) return true;
    if (rules_.reserve_percent == 0) return range_.allows(w, worker.held[h].kept + 1, most);
    range_.pin(w, most);
    return worker.held[h].kept + 1 + most * rules_.reserve_percent / 100 <= most;
  }

  /// The worker's next step, and the knockout tree of who begins first, the lowest number in a tie.
  void choose_again(size_t w) {
    workers_[w].choice = choose(workers_[w], w);
    const size_t leaves = tree_.size() / 2;
    for (size_t node = (leaves + w) / 2; node >= 1; node /= 2) {
      const size_t left = tree_[2 * node];
      const size_t right = tree_[2 * node + 1];
      tree_[node] = start_of(right) < start_of(left) ? right : left;
    }
  }
  int64_t start_of(size_t w) const {
    return w < workers_.size() ? workers_[w].choice.start : kNever;
  }

  Choice choose(const Worker& worker, size_t w) const {
    Choice input;
    Choice forward;
    // Later stages first: they are nearer to the end of the micro-batch's way.
    for (size_t h = worker.held.size(); h-- > 0;) {
      const Held& held = worker.held[h];
      if (!held.inputs.empty()) {
        const int64_t start = std::max(worker.free, held.inputs.front().time);
        if (start < input.start) input = {start, Op::BackwardInput, h};
      }
      if (!held.forwards.empty() && may_forward(worker, w, h)) {
        const int64_t start = std::max(worker.free, held.forwards.front().time);
        if (start < forward.start) forward = {start, Op::Forward, h};
      }
    }
    const Choice data = input.start <= forward.start ? input : forward;
    if (worker.weights.empty()) return data;
    const Choice weight{worker.free, Op::BackwardWeight, 0};
    if (rules_.free_memory_first && !range_.allows(w, worker.kept + 1, problem_.most_kept[w]))
      return weight;
    const OrderProblem::Stage& stage =
        problem_.stages[static_cast<size_t>(worker.weights.front().stage)];
    const int64_t waits = stage.weight * rules_.patience_percent / 100;
    return data.start <= worker.free || data.start < worker.free + waits ? data : weight;
  }

  OrderStep take(size_t w, const Choice choice) {
    Worker& worker = workers_[w];
    --left_;
    if (choice.op == Op::BackwardWeight) {
      const OrderStep step = worker.weights.front();
      worker.weights.pop_front();
      const int64_t time = problem_.stages[static_cast<size_t>(step.stage)].weight;
      worker.free += time;
      worker.work_left -= time;
      --worker.kept;
      for (Held& held : worker.held) held.kept -= held.stage == step.stage ? 1 : 0;
      return step;
    }
    Held& held = worker.held[choice.held];
    const int32_t stage = held.stage;
    const OrderProblem::Stage& times = problem_.stages[static_cast<size_t>(stage)];
    const bool forward = choice.op == Op::Forward;
    std::deque<Arrival>& queue = forward ? held.forwards : held.inputs;
    const int32_t b = queue.front().micro_batch;
    queue.pop_front();
    const int64_t time = forward ? times.forward : times.input;
    worker.free = choice.start + time;
    worker.work_left -= time;
    const int64_t end = worker.free;
    if (forward) {
      ++worker.kept;
      ++held.kept;
      ++held.ahead;
      if (stage + 1 == problem_.num_stages())
        held.inputs.push_back({b, end});
      else
        send(stage, stage + 1, b, end, true);
    } else {
      --held.ahead;
      worker.weights.push_back({Op::BackwardWeight, stage, b});
      if (stage > 0) send(stage, stage - 1, b, end, false);
    }
    return {choice.op, stage, b};
  }

  void send(int32_t from, int32_t to, int32_t b, int64_t end, bool forward) {
    const OrderProblem::Stage& link = problem_.stages[static_cast<size_t>(std::min(from, to))];
    const OrderProblem::Stage& other = problem_.stages[static_cast<size_t>(to)];
    const bool local =
        problem_.stages[static_cast<size_t>(from)].worker_of(b) == other.worker_of(b);
    Held& held = held_of(to, b);
    // Replicas may send in another order than that of the micro-batches, which the stage keeps.
    std::deque<Arrival>& queue = forward ? held.forwards : held.inputs;
    int64_t time = local ? end : end + link.message;
    if (!local && wires_.occupies(std::min(from, to))) {
      OrderWires::Message message{.link = std::min(from, to),
                                  .sender = problem_.stages[static_cast<size_t>(from)].worker_of(b),
                                  .receiver = other.worker_of(b)};
      // Steps are chosen by their starts, so messages may pass each other a little.
      int32_t ignored = OrderWires::kNobody;
      for (int64_t now = end; !wires_.advance(message, 0, now, time, ignored);) now = time;
    }
    // The recomputation does not wait for the gradient.
    const Arrival arrival{b, forward ? time : std::max<int64_t>(time - other.again, 0)};
    auto place = queue.end();
    while (place != queue.begin() && std::prev(place)->time > arrival.time) --place;
    queue.insert(place, arrival);
    choose_again(static_cast<size_t>(other.worker_of(b)));
  }

  const OrderProblem& problem_;
  GreedyRules rules_;
  KeptRange& range_;
  OrderWires wires_;
  std::vector<Worker> workers_;
  std::vector<size_t> tree_;  ///< node n has the children 2n and 2n + 1; then one leaf per worker
  int64_t left_ = 0;
};

}  // namespace

Order greedy_order(const OrderProblem& problem, const GreedyRules& rules, int64_t bound,
                   KeptRange* range) {
  KeptRange own(static_cast<size_t>(problem.num_workers));
  return GreedyRun(problem, rules, range == nullptr ? own : *range).run(bound);
}

}  // namespace penstock::schedule
