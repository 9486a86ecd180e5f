// Idle time and memory of the flushed schedules against their closed forms, measured with a
// separate clock (the simulator has its own test).
#include "penstock/schedule/generators/testing_closed_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

namespace penstock::schedule::testing {
namespace {

/// p in 2..16, m in 1..64.
void for_each_case(const std::function<void(const Case&, const Schedule&)>& visit) {
  for (int64_t p = 2; p <= 16; ++p) {
    for (int64_t m = 1; m <= 64; ++m) {
      for (const Case& c : variants(p, m)) visit(c, generate(c.kind, shape_of(c)));
    }
  }
}

}  // namespace

TEST(ClosedForms, EqualTheIdleTime) {
  std::map<Strategy, int64_t> compared;
  for_each_case([&](const Case& c, const Schedule& schedule) {
    for (const Times& times : times_samples()) {
      const std::optional<int64_t> expected = closed_idle(c, times);
      if (!expected) continue;
      const std::optional<Clocking> found = clock_schedule(schedule, times);
      ASSERT_TRUE(found) << describe(c, times) << " deadlocks";
      ASSERT_EQ(found->idle(), *expected) << describe(c, times);
      ++compared[c.kind];
    }
  });
  for (const Strategy kind :
       {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::EagerOneFOneB, Strategy::Interleaved,
        Strategy::InterleavedZb, Strategy::ZbH1, Strategy::ZbH2, Strategy::ZbV, Strategy::VHalf,
        Strategy::VMin, Strategy::DualPipeV, Strategy::DualPipe, Strategy::Chimera}) {
    EXPECT_THAT(compared[kind], ::testing::Ge(1000)) << to_string(kind);
  }
}

TEST(ClosedForms, NeverPromiseMoreThanTheDocumentedTable) {
  // Documented: (p-1)(F+I-W) for ZB-H1 where W is the shortest, (p-1)(F+B)/v for interleaving.
  const Times times{.forward = 5, .backward_input = 6, .backward_weight = 4};
  EXPECT_EQ(closed_idle({.kind = Strategy::ZbH1, .p = 4, .m = 8}, times), 3 * (5 + 6 - 4));
  const Times per_chunk{.forward = 5, .backward_input = 4, .backward_weight = 2};
  EXPECT_EQ(closed_idle({.kind = Strategy::Interleaved, .p = 4, .m = 8, .chunks = 2}, per_chunk),
            3 * (2 * 5 + 2 * 6) / 2);
}

TEST(ClosedForms, InterleavingWaitsForTheMicroBatchesMissingFromTheLastGroup) {
  for_each_case([&](const Case& c, const Schedule& schedule) {
    if (c.kind != Strategy::Interleaved || c.m < 2 * c.p || c.m % c.p == 0) return;
    for (const Times& times : times_samples()) {
      const int64_t both = times.forward + times.backward();
      const int64_t idle = clock_schedule(schedule, times)->idle();
      ASSERT_GE(idle, (c.p - 1) * both) << describe(c, times);
      ASSERT_LE(idle, (c.p - 1 + (c.chunks - 1) * (c.p - c.m % c.p)) * both) << describe(c, times);
    }
  });
}

TEST(ClosedForms, InterleavedZbKeepsToItsBoundAndIsNeverSlowerThanInterleaved) {
  for (int64_t p = 2; p <= 16; ++p) {
    for (int64_t m = 1; m <= 64; ++m) {
      const Case whole{
          .kind = Strategy::Interleaved, .p = p, .m = m, .chunks = 2 + static_cast<int>(m % 3)};
      Case split = whole;
      split.kind = Strategy::InterleavedZb;
      const Schedule interleaved = generate(whole.kind, shape_of(whole));
      const Schedule schedule = generate(split.kind, shape_of(split));
      const bool fits = m >= p && (m < 2 * p || m % p == 0);
      const int64_t missing = fits ? 0 : p - m % p;
      for (const Times& t : times_samples()) {
        const int64_t shortest = std::min({t.forward, t.backward_input, t.backward_weight});
        const int64_t idle = clock_schedule(schedule, t)->idle();
        ASSERT_LE(idle, (p - 1) * (t.forward + t.backward_input) - (std::min(m, p) - 1) * shortest +
                            (split.chunks - 1) * missing * (t.forward + t.backward()))
            << describe(split, t);
        ASSERT_LE(idle, clock_schedule(interleaved, t)->idle()) << describe(split, t);
      }
    }
  }
}

TEST(ClosedForms, ZbH2WaitsLessOnLaterWorkersWithoutABarrier) {
  // From its own first action to its last, worker r waits (p-1-r)(F+I-2W): nothing where F = I = W.
  for_each_case([&](const Case& c, const Schedule& schedule) {
    if (c.kind != Strategy::ZbH2 || c.m < 2 * c.p - 1) return;
    for (const Times& times : times_samples()) {
      const int64_t per_worker = times.forward + times.backward_input - 2 * times.backward_weight;
      if (per_worker < 0 || times.backward_weight > times.forward) continue;
      const std::optional<Clocking> found = clock_schedule(schedule, times);
      for (int64_t rank = 0; rank < c.p; ++rank) {
        ASSERT_EQ(found->idle_within(static_cast<size_t>(rank)), (c.p - 1 - rank) * per_worker)
            << describe(c, times) << ", rank " << rank;
      }
    }
  });
}

TEST(ClosedForms, ZbVHasNoIdleTimeWithinAWorkerWhenAllTakeTheSame) {
  for_each_case([&](const Case& c, const Schedule& schedule) {
    if (c.kind != Strategy::ZbV || c.m < 2 * c.p - 1) return;
    const std::optional<Clocking> found = clock_schedule(schedule, {1, 1, 1});
    for (size_t rank = 0; rank < static_cast<size_t>(c.p); ++rank)
      ASSERT_EQ(found->idle_within(rank), 0) << describe(c, {1, 1, 1});
  });
}

TEST(ClosedForms, ZbVWithFewMicroBatchesWaitsNoMoreThanTwiceAsLong) {
  for (const int64_t p : {3, 8, 13, 16}) {
    for (const int64_t m : {p + 1, p + 2, p * 3 / 2, 2 * p - 2}) {
      const Case c{.kind = Strategy::ZbV, .p = p, .m = m, .chunks = 2};
      ASSERT_LE(clock_schedule(generate(c.kind, shape_of(c)), {1, 1, 1})->idle(), 2 * (p - 1))
          << describe(c, {1, 1, 1});
    }
  }
}

TEST(ClosedForms, EqualThePeakOfMicroBatchesKept) {
  for_each_case([&](const Case& c, const Schedule& schedule) {
    int64_t busiest = 0;
    for (size_t w = 0; w < schedule.workers.size(); ++w) {
      int64_t kept = 0;
      int64_t most = 0;
      for (const Action& action : schedule.workers[w]) {
        if (action.op == Op::Forward) most = std::max(most, ++kept);
        if (makes_weight_gradients(action.op)) --kept;
      }
      const int64_t expected = closed_stash(c, static_cast<int64_t>(w));
      const bool fills_v =
          c.m >= 2 * c.p - 1 || (c.kind != Strategy::ZbV && c.kind != Strategy::DualPipeV);
      const bool is_short = c.kind == Strategy::DualPipe && c.m < 2 * c.p;
      const bool is_uneven = c.kind == Strategy::VHalf || c.kind == Strategy::VMin;
      busiest = std::max(busiest, most);
      if (c.kind == Strategy::Chimera || !fills_v || is_short || is_uneven) {
        ASSERT_LE(most, expected) << describe(c, {}) << ", worker " << w;
      } else {
        ASSERT_EQ(most, expected) << describe(c, {}) << ", worker " << w;
      }
    }
    if (c.kind == Strategy::VHalf || c.kind == Strategy::VMin) {
      ASSERT_EQ(busiest, closed_stash(c, 0)) << describe(c, {});
    }
  });
}

TEST(ClosedForms, AreThoseOfTheTraitsWhereTheseAreExact) {
  for_each_case([&](const Case& c, const Schedule& schedule) {
    for (size_t w = 0; w < schedule.workers.size(); ++w) {
      const auto rank = static_cast<int64_t>(w);
      const int64_t documented = closed_stash(c, rank);
      const int64_t bound = traits(c.kind).most_kept({.workers = c.p,
                                                      .rank = rank,
                                                      .depth = c.p - rank,
                                                      .behind = c.p - 1 - rank,
                                                      .chunks = c.chunks,
                                                      .micro_batches = c.m,
                                                      .slack = c.slack});
      ASSERT_LE(documented, bound) << describe(c, {}) << ", worker " << w;
      if (c.m >= 2 * c.p + 1) {
        ASSERT_EQ(documented, bound) << describe(c, {}) << ", worker " << w;
      }
    }
  });
}

TEST(Schedules, HaveTheDocumentedOrderOfIdleTimeWithoutLatency) {
  // Per worker and micro-batch F = I = W = 12 in all, split over the stages that a worker holds.
  const auto idle = [](Strategy kind, int chunks) {
    const Case c{.kind = kind, .p = 4, .m = 16, .chunks = chunks};
    return clock_schedule(generate(kind, shape_of(c)), {12 / chunks, 12 / chunks, 12 / chunks})
        ->idle();
  };
  EXPECT_EQ(idle(Strategy::OneFOneBFlush, 1), 108);
  EXPECT_EQ(idle(Strategy::Interleaved, 2), 54);
  EXPECT_EQ(idle(Strategy::ZbH1, 1), 36);
  EXPECT_EQ(idle(Strategy::ZbH2, 1), 36);
  EXPECT_EQ(idle(Strategy::Interleaved, 4), 27);
  EXPECT_EQ(idle(Strategy::InterleavedZb, 2), 18);
  EXPECT_EQ(idle(Strategy::InterleavedZb, 4), 9);
  EXPECT_EQ(idle(Strategy::VMin, 2), 66);
  EXPECT_EQ(idle(Strategy::VHalf, 2), 42);
  EXPECT_EQ(idle(Strategy::ZbV, 2), 18);
  EXPECT_EQ(idle(Strategy::DualPipeV, 2), 18);
  EXPECT_EQ(idle(Strategy::DualPipe, 1), 24);
}

}  // namespace penstock::schedule::testing
