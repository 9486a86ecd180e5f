#include "penstock/schedule/generators/cost_order.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "penstock/plan/keep.h"
#include "penstock/schedule/orders/search_order.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::schedule {
namespace {

/// Sums over all steps of the largest schedule stay far from overflow.
constexpr int64_t kMostCost = 100'000'000'000;
/// Without a barrier, a mini-batch's order is judged by this many in a row.
constexpr int kRepetitions = 3;
constexpr size_t kRemembered = 8;

using Known = std::span<WorkerLists (*const)(const ScheduleShape&)>;

/// Per worker.
std::vector<int64_t> most_kept(const ScheduleShape& shape, const OrderProblem& problem,
                               int64_t usual) {
  std::vector<int64_t> most(static_cast<size_t>(problem.num_workers), 0);
  for (size_t s = 0; s < shape.keep.size(); ++s) {
    for (const int32_t worker : problem.stages[s].workers) {
      int64_t& kept = most[static_cast<size_t>(worker)];
      kept = plan::stricter_keep(kept, shape.keep[s]);
    }
  }
  for (int64_t& kept : most) kept = kept > 0 ? kept : usual;
  return most;
}

/// Of the micro-batches [begin, begin + count), which are one mini-batch.
OrderProblem problem_of(const ScheduleShape& shape, const WorkerTable& table, int64_t begin,
                        int64_t count, int64_t usual_keep) {
  OrderProblem problem{.num_workers = table.num_workers(),
                       .num_micro_batches = static_cast<int32_t>(count),
                       .link_units = shape.link_units,
                       .repetitions = shape.repeats && !shape.global_norm ? kRepetitions : 1};
  for (int s = 0; s < shape.num_stages(); ++s) {
    const StepCosts costs = shape.costs.empty() ? StepCosts{} : shape.costs[static_cast<size_t>(s)];
    const int replicas = shape.replicas[static_cast<size_t>(s)];
    OrderProblem::Stage stage{.first_turn = begin % replicas,
                              .forward = std::min(costs.forward, kMostCost),
                              .input = std::min(costs.input, kMostCost),
                              .again = std::min(costs.again, kMostCost),
                              .weight = std::min(costs.weight, kMostCost),
                              .message = std::min(costs.message, kMostCost),
                              .busy = costs.busy,
                              .finish = std::min(costs.finish, kMostCost)};
    for (int64_t& busy : stage.busy) busy = std::min(busy, kMostCost);
    for (int r = 0; r < replicas; ++r)
      stage.workers.push_back(table.worker_of_replica(StageId{s}, r).value);
    problem.stages.push_back(std::move(stage));
  }
  problem.most_kept = most_kept(shape, problem, usual_keep);
  return problem;
}

std::vector<Order> known_orders(const ScheduleShape& shape, int64_t begin, int64_t count,
                                Known known) {
  std::vector<Order> orders;
  // They begin with the first replica of each stage.
  for (const int replicas : shape.replicas) {
    if (begin % replicas != 0) return orders;
  }
  ScheduleShape single = shape;
  single.micro_batches = count;
  single.accumulate = count;
  for (const auto& generator : known) orders.push_back(order_of(generator(single)));
  return orders;
}

/// The last few answers: planning simulates the same order several times, and every rank and run of
/// a plan needs it again.
class Memory {
 public:
  template <class Solve>
  Order find_or(const OrderProblem& problem, Solve solve) {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, order] : answers_) {
        if (known == problem) return order;
      }
    }
    Order order = solve();
    const std::lock_guard lock(mutex_);
    answers_.emplace_back(problem, order);
    if (answers_.size() > kRemembered) answers_.pop_front();
    return order;
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<OrderProblem, Order>> answers_;
};

}  // namespace

WorkerLists cost_made_lists(const ScheduleShape& shape, Known known, int64_t usual_keep) {
  static Memory memory;
  const WorkerTable table(shape);
  WorkerLists workers(static_cast<size_t>(table.num_workers()));
  OrderProblem last;
  Order order;
  for (int64_t begin = 0; begin < shape.micro_batches; begin += shape.accumulate) {
    const int64_t count = std::min(shape.accumulate, shape.micro_batches - begin);
    OrderProblem problem = problem_of(shape, table, begin, count, usual_keep);
    if (begin == 0 || problem != last) {
      order = memory.find_or(
          problem, [&] { return search_order(problem, known_orders(shape, begin, count, known)); });
      last = std::move(problem);
    }
    for (size_t w = 0; w < workers.size(); ++w) {
      for (const OrderStep& step : order[w]) {
        const StageId stage{step.stage};
        const MicroBatchId b{begin + step.micro_batch};
        workers[w].push_back({.op = step.op,
                              .stage = stage,
                              .micro_batch = b,
                              .mini_batch = shape.mini_batch_of(b),
                              .peer = stage});
      }
    }
  }
  return workers;
}

}  // namespace penstock::schedule
