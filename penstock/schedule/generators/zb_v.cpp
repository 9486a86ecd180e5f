#include "penstock/schedule/generators/zb_v.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <vector>

#include "penstock/schedule/generators/compute_lists.h"
#include "penstock/schedule/orders/greedy_order.h"
#include "penstock/schedule/orders/search_order.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::schedule {
namespace {

/// Of search_order().
constexpr int64_t kShortSteps = 2'000'000;

struct ZbTurn {
  size_t chunk;
  Op op;
};

/// Writes the order for enough micro-batches to fill the V, and leaves out those that the
/// mini-batch does not have.
class ZbWriter {
 public:
  ZbWriter(std::span<ComputeList> chunks, int64_t begin, int64_t end)
      : chunks_(chunks), begin_(begin), count_(end - begin) {}

  /// Repeats the turns `times` times, each with its next micro-batch.
  void repeat(int64_t times, std::initializer_list<ZbTurn> turns) {
    for (int64_t i = 0; i < times; ++i) {
      bool wrote = false;
      for (const ZbTurn& turn : turns) wrote = write(turn) || wrote;
      if (wrote) continue;
      // Later rounds would write nothing either.
      for (const ZbTurn& turn : turns) next(turn) += times - i - 1;
      return;
    }
  }
  int64_t& next(const ZbTurn& turn) {
    return next_[turn.chunk][turn.op == Op::Forward ? 0 : turn.op == Op::BackwardInput ? 1 : 2];
  }

 private:
  bool write(const ZbTurn& turn) {
    const int64_t index = next(turn)++;
    if (index >= count_) return false;
    chunks_[turn.chunk].add(turn.op, begin_ + index);
    return true;
  }

  std::span<ComputeList> chunks_;
  int64_t begin_;
  int64_t count_;
  std::array<std::array<int64_t, 3>, 2> next_{};
};

}  // namespace

void fill_zb_v(std::span<ComputeList> chunks, int64_t workers, int64_t begin, int64_t end) {
  constexpr ZbTurn kF0{0, Op::Forward};
  constexpr ZbTurn kI0{0, Op::BackwardInput};
  constexpr ZbTurn kW0{0, Op::BackwardWeight};
  constexpr ZbTurn kF1{1, Op::Forward};
  constexpr ZbTurn kI1{1, Op::BackwardInput};
  constexpr ZbTurn kW1{1, Op::BackwardWeight};
  const int64_t rank = chunks[0].stage().value;
  const int64_t after = workers - rank;  // workers from this one to the turn of the V
  const int64_t count = std::max(end - begin, 2 * workers - 1);
  ZbWriter writer(chunks, begin, end);
  // Down the V and back, until the first gradients arrive.
  writer.repeat(2 * after - 1, {kF0});
  writer.repeat(rank, {kF1, kF0});
  writer.repeat(after, {kF1, kI1, kW1});
  // One micro-batch through both stages per round.
  const int64_t with_forward = count - writer.next(kF0);
  writer.repeat(with_forward, {kF0, kI0, kW0, kF1, kI1, kW1});
  writer.repeat(count - writer.next(kF1), {kI0, kW0, kF1, kI1, kW1});
  // The weights' gradients fill the time that would be idle at the end.
  writer.repeat(rank, {kI0, kI1});
  writer.repeat(after, {kI0, kW0});
  writer.repeat(count - writer.next(kW1), {kW1});
  writer.repeat(count - writer.next(kW0), {kW0});
}

namespace {

/// Too few micro-batches to fill the V: the best greedy order at F = I = W, improved. Empty where
/// no order that was tried runs with one credit.
Order short_order(int64_t workers, int64_t count) {
  OrderProblem problem{.num_workers = static_cast<int32_t>(workers),
                       .num_micro_batches = static_cast<int32_t>(count),
                       .one_credit = true};
  for (int32_t s = 0; s < 2 * workers; ++s)
    problem.stages.push_back({.workers = {std::min(s, static_cast<int32_t>(2 * workers) - 1 - s)}});
  problem.most_kept.assign(static_cast<size_t>(workers), 2 * workers);
  // The search has fewer of them, and none for large V.
  std::vector<Order> greedy;
  // For larger ones search_order() makes the orders that it can afford.
  constexpr int64_t kMostSteps = 1'000'000;
  const bool is_small = saturating_mul(6 * workers, count) <= kMostSteps;
  for (const int64_t patience : {0, 200}) {
    if (!is_small) break;
    for (const int64_t reserve : {0, 30, 40}) {
      for (const bool free_memory_first : {false, true}) {
        greedy.push_back(greedy_order(problem, {.patience_percent = patience,
                                                .reserve_percent = reserve,
                                                .free_memory_first = free_memory_first}));
      }
    }
  }
  return search_order(problem, greedy, kShortSteps);
}

}  // namespace

template <>
WorkerLists generate_compute<Strategy::ZbV>(const ScheduleShape& shape) {
  const int64_t workers = shape.num_stages() / 2;
  std::map<int64_t, Order> short_orders;  // by their number of micro-batches
  return make_chunked_lists(shape, 3, [&](std::span<ComputeList> chunks) {
    for_each_mini_batch(shape, chunks.front(), [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      if (count >= 2 * workers - 1) return fill_zb_v(chunks, workers, begin, end);
      const auto [entry, is_new] = short_orders.try_emplace(count);
      if (is_new) entry->second = short_order(workers, count);
      if (entry->second.empty()) return fill_zb_v(chunks, workers, begin, end);
      for (const OrderStep& step : entry->second[chunks[0].stage().index()])
        chunks[step.stage < workers ? 0 : 1].add(step.op, begin + step.micro_batch);
    });
  });
}

}  // namespace penstock::schedule
