#include "penstock/schedule/orders/search_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/generators/testing_clock.h"
#include "penstock/schedule/orders/greedy_order.h"
#include "penstock/schedule/orders/order_clock.h"
#include "penstock/schedule/orders/order_credits.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::schedule {
namespace {

int64_t between(Rng& rng, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(rng.below(static_cast<uint64_t>(most - least + 1)));
}

/// Stages that differ by up to 40 %, messages of up to 0.3 F.
OrderProblem random_problem(Rng& rng, int workers, int micro_batches, bool in_a_v) {
  OrderProblem problem{.num_workers = workers, .num_micro_batches = micro_batches};
  const int64_t input = between(rng, 500, 2'000);
  const int64_t weight = between(rng, 300, 1'500);
  const int64_t message = rng.below(2) == 0 ? 0 : between(rng, 0, 300);
  const int64_t spread = rng.below(2) == 0 ? 0 : 400;
  const int stages = in_a_v ? 2 * workers : workers;
  for (int s = 0; s < stages; ++s) {
    const int64_t share = 1'000 - between(rng, 0, spread);
    problem.stages.push_back({.workers = {std::min(s, in_a_v ? stages - 1 - s : s)},
                              .forward = share,
                              .input = input * share / 1'000,
                              .weight = weight * share / 1'000,
                              .message = message});
  }
  problem.most_kept.assign(static_cast<size_t>(workers), stages + (in_a_v ? 0 : stages - 1));
  return problem;
}

std::string describe(const OrderProblem& problem) {
  std::string text = std::to_string(problem.num_workers) + " workers, " +
                     std::to_string(problem.num_micro_batches) + " micro-batches, keeps " +
                     std::to_string(problem.most_kept.front()) + ", stages";
  for (const auto& stage : problem.stages) {
    text += " " + std::to_string(stage.forward) + "/" + std::to_string(stage.input) + "/" +
            std::to_string(stage.weight) + "/" + std::to_string(stage.message);
  }
  return text;
}

int64_t time_of(const OrderProblem& problem, const Order& order) {
  return OrderClock(problem).run(order).end;
}

void expect_complete(const OrderProblem& problem, const Order& order) {
  std::vector<OrderStep> steps;
  for (int32_t w = 0; w < problem.num_workers; ++w) {
    EXPECT_TRUE(fits(problem, w, order[static_cast<size_t>(w)])) << describe(problem);
    for (const OrderStep& step : order[static_cast<size_t>(w)]) {
      EXPECT_EQ(problem.stages[static_cast<size_t>(step.stage)].worker_of(step.micro_batch), w);
      steps.push_back(step);
    }
  }
  for (int32_t s = 0; s < problem.num_stages(); ++s) {
    for (int32_t b = 0; b < problem.num_micro_batches; ++b) {
      for (const Op op : {Op::Forward, Op::BackwardInput, Op::BackwardWeight})
        EXPECT_EQ(std::count(steps.begin(), steps.end(), OrderStep{op, s, b}), 1);
    }
  }
  EXPECT_FALSE(OrderClock(problem).run(order).is_stuck()) << describe(problem);
}

/// All lists of a worker's stage that go through the micro-batches in ascending order.
std::vector<std::vector<OrderStep>> all_lists(const OrderProblem& problem, int32_t stage) {
  std::vector<std::vector<OrderStep>> lists;
  std::vector<OrderStep> list;
  const int32_t count = problem.num_micro_batches;
  const std::function<void(int32_t, int32_t, int32_t)> extend = [&](int32_t f, int32_t i,
                                                                    int32_t w) {
    if (w == count) {
      lists.push_back(list);
      return;
    }
    const auto with = [&](Op op, int32_t b, int32_t df, int32_t di, int32_t dw) {
      list.push_back({op, stage, b});
      extend(f + df, i + di, w + dw);
      list.pop_back();
    };
    if (f < count && f - w < problem.most_kept[static_cast<size_t>(stage)])
      with(Op::Forward, f, 1, 0, 0);
    if (i < f) with(Op::BackwardInput, i, 0, 1, 0);
    if (w < i) with(Op::BackwardWeight, w, 0, 0, 1);
  };
  extend(0, 0, 0);
  return lists;
}

int64_t best_by_brute_force(const OrderProblem& problem) {
  OrderClock clock(problem);
  int64_t best = std::numeric_limits<int64_t>::max();
  const auto first = all_lists(problem, 0);
  const auto second = all_lists(problem, 1);
  for (const auto& a : first) {
    for (const auto& b : second) best = std::min(best, clock.run({a, b}).end);
  }
  return best;
}

/// All kinds with a flush that run on the placement.
std::vector<Schedule> other_kinds(int workers, int micro_batches, bool in_a_v) {
  std::vector<Schedule> schedules;
  for (const Strategy kind : plan::scheduled_strategies()) {
    const plan::StrategyTraits& row = traits(kind);
    const auto placement = in_a_v ? plan::Placement::V : plan::Placement::OneStage;
    if (row.placement != placement || !row.flushes() || !row.trains || row.takes_keep ||
        row.extent != plan::Extent::Pipeline || row.is_sequential())
      continue;
    ScheduleShape shape{
        .replicas = std::vector<int>(static_cast<size_t>(in_a_v ? 2 * workers : workers), 1),
        .micro_batches = micro_batches,
        .accumulate = micro_batches};
    if (row.takes_slack) shape.slack = 1;
    schedules.push_back(generate(kind, with_placement(kind, shape)));
  }
  return schedules;
}

int64_t most_kept(const Order& order) {
  int64_t most = 0;
  for (const auto& list : order) {
    int64_t kept = 0;
    for (const OrderStep& step : list) {
      if (step.op == Op::Forward) most = std::max(most, ++kept);
      if (step.op == Op::BackwardWeight) --kept;
    }
  }
  return most;
}

}  // namespace

TEST(OrderClock, AgreesWithTheClockOfTheGenerators) {
  for (const bool in_a_v : {false, true}) {
    for (const Schedule& schedule : other_kinds(5, 7, in_a_v)) {
      OrderProblem problem{.num_workers = 5, .num_micro_batches = 7};
      for (int s = 0; s < schedule.shape.num_stages(); ++s) {
        const int last = schedule.shape.num_stages() - 1;
        problem.stages.push_back({.workers = {std::min(s, in_a_v ? last - s : s)},
                                  .forward = 3,
                                  .input = 5,
                                  .weight = 2});
      }
      const auto clocking = testing::clock_schedule(
          schedule, {.forward = 3, .backward_input = 5, .backward_weight = 2});
      ASSERT_TRUE(clocking);
      // A whole backward hands its gradient on only when W is done, too.
      const int64_t time = time_of(problem, order_of(schedule.workers));
      EXPECT_LE(time, clocking->makespan) << schedule.kind;
      const Strategy kind = plan::parse_scheduled_strategy(schedule.kind);
      if (traits(kind).splits_backward) {
        EXPECT_EQ(time, clocking->makespan) << schedule.kind;
      }
    }
  }
}

TEST(OrderClock, SeesListsThatWaitForEachOther) {
  OrderProblem problem{.num_workers = 2,
                       .num_micro_batches = 1,
                       .stages = {{.workers = {0}}, {.workers = {1}}},
                       .most_kept = {1, 1}};
  const OrderStep f0{Op::Forward, 0, 0}, i0{Op::BackwardInput, 0, 0}, w0{Op::BackwardWeight, 0, 0};
  const OrderStep f1{Op::Forward, 1, 0}, i1{Op::BackwardInput, 1, 0}, w1{Op::BackwardWeight, 1, 0};
  EXPECT_EQ(time_of(problem, {{f0, i0, w0}, {f1, i1, w1}}), 5);
  EXPECT_TRUE(OrderClock(problem).run({{i0, f0, w0}, {f1, i1, w1}}).is_stuck());
  EXPECT_FALSE(fits({.num_workers = 1, .most_kept = {0}}, 0, {f0, i0, w0}));
}

TEST(GreedyOrder, IsCompleteAndFitsForEveryRule) {
  Rng rng(7);
  for (int i = 0; i < 60; ++i) {
    const bool in_a_v = i % 2 == 1;
    OrderProblem problem = random_problem(rng, static_cast<int>(between(rng, 1, 6)),
                                          static_cast<int>(between(rng, 1, 12)), in_a_v);
    const int64_t least = in_a_v ? 2 : 1;
    problem.most_kept.assign(problem.most_kept.size(), between(rng, least, 14));
    expect_complete(problem,
                    greedy_order(problem, {.lead_percent = between(rng, 50, 400),
                                           .patience_percent = between(rng, 0, 150),
                                           .reserve_percent = in_a_v ? between(rng, 0, 60) : 0,
                                           .free_memory_first = rng.below(2) == 0}));
  }
}

TEST(SearchOrder, IsAsGoodAsBruteForceOnTwoWorkers) {
  Rng rng(3);
  int optimal = 0;
  constexpr int kProblems = 60;
  for (int i = 0; i < kProblems; ++i) {
    OrderProblem problem = random_problem(rng, 2, i % 3 == 0 ? 2 : 3, false);
    problem.most_kept.assign(2, between(rng, 1, 3));
    const int64_t best = best_by_brute_force(problem);
    const int64_t found = time_of(problem, search_order(problem));
    EXPECT_GE(found, best) << describe(problem);
    EXPECT_GE(best, least_time(problem)) << describe(problem);
    EXPECT_LE(static_cast<double>(found), 1.05 * static_cast<double>(best)) << describe(problem);
    optimal += found == best ? 1 : 0;
  }
  EXPECT_GE(optimal, kProblems * 9 / 10);
}

TEST(SearchOrder, IsNeverSlowerThanOtherKindsThatKeepAsMuch) {
  Rng rng(11);
  for (int i = 0; i < 24; ++i) {
    const bool in_a_v = i % 2 == 1;
    const int workers = static_cast<int>(between(rng, 2, 8));
    const int micro_batches = workers * static_cast<int>(between(rng, 1, 4));
    OrderProblem problem = random_problem(rng, workers, micro_batches, in_a_v);
    std::vector<Order> known;
    for (const Schedule& schedule : other_kinds(workers, micro_batches, in_a_v))
      known.push_back(order_of(schedule.workers));
    for (const Order& other : known) {
      problem.most_kept.assign(problem.most_kept.size(), most_kept(other));
      const Order order = search_order(problem, known, 2'000'000);
      expect_complete(problem, order);
      EXPECT_LE(time_of(problem, order), time_of(problem, other)) << describe(problem);
    }
  }
}

TEST(SearchOrder, IsNeverSlowerWithMoreMemory) {
  Rng rng(13);
  for (int i = 0; i < 8; ++i) {
    const bool in_a_v = i % 2 == 1;
    const int workers = static_cast<int>(between(rng, 2, 5));
    OrderProblem problem = random_problem(rng, workers, 3 * workers, in_a_v);
    int64_t before = std::numeric_limits<int64_t>::max();
    for (int64_t keep = in_a_v ? 2 : 1; keep <= 4 * workers; ++keep) {
      problem.most_kept.assign(problem.most_kept.size(), keep);
      const int64_t time = time_of(problem, search_order(problem, {}, 1'000'000));
      EXPECT_LE(time, before) << describe(problem);
      EXPECT_GE(time, least_time(problem)) << describe(problem);
      before = time;
    }
  }
}

TEST(SearchOrder, IsTheSameEveryTime) {
  Rng rng(17);
  const OrderProblem problem = random_problem(rng, 6, 12, false);
  EXPECT_EQ(search_order(problem), search_order(problem));
}

/// What earlier searches of the problem leave behind changes nothing.
TEST(SearchOrder, IsTheSameAfterSearchesThatMayKeepMore) {
  constexpr int64_t kEffort = 300'000;
  Rng rng(19);
  for (int i = 0; i < 6; ++i) {
    OrderProblem problem = random_problem(rng, 4, 10, i % 2 == 1);
    problem.repetitions = 1 + i % 3;
    for (int64_t keep = 12; keep >= 2; keep -= 2) {
      for (int64_t& most : problem.most_kept) most = between(rng, keep, keep + 3);
      // Another problem to those who compare, with the same orders: no links are shared.
      OrderProblem fresh = problem;
      fresh.stages.front().busy.assign(static_cast<size_t>(keep), 0);
      EXPECT_EQ(search_order(problem, {}, kEffort), search_order(fresh, {}, kEffort))
          << describe(problem);
    }
  }
}

TEST(OrderClock, EndsEarlyOnlyWhereTheTimeIsNotBetter) {
  Rng rng(23);
  for (int i = 0; i < 300; ++i) {
    const bool in_a_v = i % 2 == 1;
    OrderProblem problem = random_problem(rng, static_cast<int>(between(rng, 1, 5)), 8, in_a_v);
    problem.repetitions = 1 + i % 3;
    if (i % 5 == 0) {
      problem.link_units.emplace_back();
      for (int32_t w = 0; w < problem.num_workers; ++w) problem.link_units[0].push_back(w / 2);
    }
    for (OrderProblem::Stage& stage : problem.stages) {
      stage.finish = i % 4 == 0 ? between(rng, 0, 300) : 0;
      if (i % 5 == 0) stage.busy = {stage.message};
    }
    OrderClock clock(problem);
    const auto any_order = [&] {
      return greedy_order(problem, {.lead_percent = between(rng, 100, 250),
                                    .patience_percent = between(rng, 0, 150)});
    };
    const Order order = any_order();
    const OrderTime time = clock.run(order);
    const OrderTime best = clock.run(any_order());
    EXPECT_EQ(std::min(clock.run(order, best), best), std::min(time, best)) << describe(problem);
    EXPECT_EQ(clock.run(order), time);
    EXPECT_EQ(clock.run(order, {.end = time.end, .ends = time.ends + 1}), time);
    EXPECT_TRUE(clock.run(order, {.end = time.end, .ends = time.ends}) >= time);
  }
}

/// Servers of two with a wire of their own: here one message waits for another, and that one, at
/// another wire, for a third that was sent after the first.
TEST(SearchOrder, EndsWhereMessagesWaitForEachOther) {
  const auto stage = [](std::vector<int32_t> workers, std::vector<int64_t> times,
                        std::vector<int64_t> busy) {
    const int64_t message = std::max(busy[0], busy[1]) + 1;
    return OrderProblem::Stage{.workers = std::move(workers),
                               .forward = times[0],
                               .input = times[1],
                               .weight = times[2],
                               .message = message,
                               .busy = std::move(busy)};
  };
  OrderProblem problem{
      .num_workers = 13,
      .num_micro_batches = 12,
      .stages = {stage({0, 1, 2}, {9, 13, 6}, {8, 0}), stage({3, 4}, {12, 8, 5}, {16, 0}),
                 stage({5, 6}, {5, 14, 11}, {16, 128}), stage({7}, {13, 10, 6}, {8, 64}),
                 stage({8}, {8, 5, 12}, {24, 0}), stage({9, 10, 11}, {14, 10, 10}, {11, 0}),
                 stage({12}, {7, 13, 6}, {27, 216})},
      .most_kept = std::vector<int64_t>(13, 39),
      .link_units = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                     {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7}},
      .repetitions = 2};
  constexpr int64_t kEffort = 100'000;
  expect_complete(problem, search_order(problem, {}, kEffort));
}

TEST(SearchOrder, HasNoBubbleButTheFillWhereMemoryAllows) {
  for (const bool in_a_v : {false, true}) {
    OrderProblem problem{.num_workers = 8, .num_micro_batches = in_a_v ? 8 : 16};
    for (int s = 0; s < (in_a_v ? 16 : 8); ++s)
      problem.stages.push_back({.workers = {std::min(s, in_a_v ? 15 - s : s)}});
    problem.most_kept.assign(8, in_a_v ? 16 : 15);
    EXPECT_EQ(time_of(problem, search_order(problem)), 7 + 3 * 16);
  }
}

TEST(SearchOrder, DealsWithReplicasAndRepetitions) {
  OrderProblem problem{.num_workers = 4,
                       .num_micro_batches = 6,
                       .stages = {{.workers = {0, 1}, .first_turn = 1, .message = 1},
                                  {.workers = {2}, .first_turn = 0, .message = 1},
                                  {.workers = {3}}},
                       .most_kept = {4, 4, 4, 4},
                       .repetitions = 3};
  const Order order = search_order(problem);
  expect_complete(problem, order);
  EXPECT_GE(time_of(problem, order), 3 * 18);
}

// Two stages, each on its worker.
TEST(OrderCredits, WorkersThatSendTwiceBeforeTheyReceiveNeedTwo) {
  const OrderProblem problem{.num_workers = 2,
                             .num_micro_batches = 4,
                             .stages = {{.workers = {0}}, {.workers = {1}}},
                             .most_kept = {4, 4}};
  const auto f = [](int stage, int b) { return OrderStep{Op::Forward, stage, b}; };
  const auto i = [](int stage, int b) { return OrderStep{Op::BackwardInput, stage, b}; };
  Order order = {{f(0, 0), f(0, 1), f(0, 2), f(0, 3), i(0, 0), i(0, 1), i(0, 2), i(0, 3)},
                 {f(1, 0), i(1, 0), f(1, 1), i(1, 1), f(1, 2), i(1, 2), f(1, 3), i(1, 3)}};
  EXPECT_FALSE(OrderClock(problem).run(order).is_stuck());
  // Worker 1 sends its second gradient before worker 0 receives the first, and worker 0 its fourth
  // micro-batch before worker 1 receives the third.
  EXPECT_FALSE(runs_with_one_credit(problem, order));
  order[0] = {f(0, 0), f(0, 1), i(0, 0), f(0, 2), i(0, 1), f(0, 3), i(0, 2), i(0, 3)};
  EXPECT_TRUE(runs_with_one_credit(problem, order));
  order[1] = {i(1, 0), f(1, 0)};
  EXPECT_FALSE(runs_with_one_credit(problem, order)) << "waits for itself";
}

// Of 10 workers in a V and 16 micro-batches the fastest order that is found needs two.
TEST(OrderCredits, SearchedOrdersRunWithOneWhereThatIsAsked) {
  OrderProblem problem{.num_workers = 10, .num_micro_batches = 16};
  for (int s = 0; s < 20; ++s) problem.stages.push_back({.workers = {std::min(s, 19 - s)}});
  problem.most_kept.assign(10, 20);
  constexpr int64_t kEffort = 2'000'000;
  problem.one_credit = true;
  const Order order = search_order(problem, {}, kEffort);
  EXPECT_FALSE(order.empty());
  EXPECT_TRUE(runs_with_one_credit(problem, order));
}

}  // namespace penstock::schedule
