// Properties of every generator and of lowering, over a grid of shapes and over random ones.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <functional>

#include "penstock/schedule/worker_table.h"
#include "penstock/verify/testing_schedules.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {
namespace {

using schedule::Action;
using schedule::Op;

void for_each_sample(const std::function<void(Strategy, const ScheduleShape&)>& visit) {
  for (const auto& [kind, policy] : kinds_and_policies()) {
    for (const std::vector<int>& replicas : replica_samples()) {
      for (const int64_t micro_batches : {0, 1, 2, 5, 8, 13, 20}) {
        for (const int64_t accumulate : {1, 2, 3, 4, 7, 8}) {
          ScheduleShape shape{.replicas = replicas,
                              .micro_batches = micro_batches,
                              .accumulate = accumulate,
                              .policy = policy};
          // Recomputation and norms in some of the samples.
          if (accumulate % 3 == 1) shape.recompute.assign(replicas.size(), true);
          if (accumulate == 2) shape.recompute.resize(replicas.size());
          if (accumulate == 2) shape.recompute[replicas.size() / 2] = true;
          shape.global_norm = accumulate % 4 < 2;
          if (const auto hosted = shape_for(kind, shape)) visit(kind, *hosted);
        }
      }
    }
  }
}

/// Credits with which the samples of the kind are free of deadlock: interleaving with any number of
/// micro-batches sends up to four messages ahead, all others one.
int64_t enough_credits(Strategy kind, const ScheduleShape& shape) {
  // No more than the sender may keep.
  if (traits(kind).takes_keep) return 2 * shape.num_workers();
  // Online with NORM: as many as frames are under way.
  if (kind == Strategy::Online) return 16;
  return traits(kind).takes_chunks() ? 4 : 1;
}

/// Micro-batches from the oldest whose backward is pending to the newest whose forward ran, in 1F1B
/// with the shape's slack: the definition of pipeline_depth(), which is for a slack of 0, over the
/// warm-up depths. A stage sends no further ahead, so no channel holds more of its messages.
int64_t most_under_way(const ScheduleShape& shape) {
  const std::vector<int64_t> depths = schedule::warmup_depths(shape);
  int64_t most = 1;
  for (size_t s = 0; s < depths.size(); ++s)
    most = std::max(most, (depths[s] - 1) * shape.replicas[s] + 1);
  return most;
}

int64_t count_of(const ScheduleShape& shape, int replica, int replicas) {
  return shape.micro_batches <= replica ? 0
                                        : (shape.micro_batches - replica + replicas - 1) / replicas;
}

/// The largest number of micro-batches of one mini-batch that the replica runs.
int64_t most_in_a_mini_batch(const ScheduleShape& shape, int replica, int replicas) {
  int64_t most = 0;
  std::vector<int64_t> counts(static_cast<size_t>(shape.num_mini_batches()));
  for (int64_t b = replica; b < shape.micro_batches; b += replicas)
    most = std::max(most, ++counts[static_cast<size_t>(b / shape.accumulate)]);
  return most;
}

/// docs/schedules.md: peak stash of each kind with one stage per worker and a backward that is not
/// split.
int64_t documented_stash(Strategy kind, const ScheduleShape& shape, StageId stage, int replica) {
  const int replicas = shape.replicas[stage.index()];
  const int64_t count = count_of(shape, replica, replicas);
  if (shape.policy == WeightPolicy::Current) return std::min<int64_t>(1, count);
  switch (kind) {
    case Strategy::GPipe:
      return most_in_a_mini_batch(shape, replica, replicas);
    case Strategy::OneFOneB:
    case Strategy::Online:
    case Strategy::TwoBuffered:
      return std::min(schedule::warmup_depths(shape)[stage.index()], count);
    case Strategy::OneFOneBFlush:
    case Strategy::EagerOneFOneB:
      return std::min(schedule::warmup_depths(shape)[stage.index()],
                      most_in_a_mini_batch(shape, replica, replicas));
    case Strategy::ForwardOnly:
      return 0;
    default:
      return std::min<int64_t>(1, count);
  }
}

/// docs/weights.md: the version of the forward of micro-batch b, in closed form.
int64_t documented_version(const ScheduleShape& shape, StageId stage, int64_t b) {
  const auto steps_at = [&](StageId s) {
    const int64_t key =
        b - (schedule::warmup_depths(shape)[s.index()] - 1) * shape.replicas[s.index()];
    return std::max<int64_t>(key, 0) / shape.accumulate;
  };
  const int64_t mini_batch = b / shape.accumulate;
  switch (shape.policy) {
    case WeightPolicy::Flush:
      return mini_batch;
    case WeightPolicy::VerticalSync:
      return steps_at(StageId{0});
    case WeightPolicy::TwoBuffered:
      return std::max<int64_t>(mini_batch - 1, 0);
    case WeightPolicy::Stash:
    case WeightPolicy::Latest:
    case WeightPolicy::Current:
      break;
  }
  return steps_at(stage);
}

}  // namespace

TEST(Generators, AreCleanOverTheGrid) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    ASSERT_EQ(first_violation(full_schedule(kind, shape), enough_credits(kind, shape)), "")
        << describe(kind, shape);
  });
}

TEST(Generators, AreCleanBeforeLowering) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    ASSERT_EQ(first_violation(schedule::generate(kind, shape), 1), "") << describe(kind, shape);
  });
}

TEST(Generators, StashTheDocumentedNumberOfMicroBatches) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    // Several stages per worker and split backwards have their own closed forms; the generators'
    // tests check them.
    if (!shape.worker_of_replica.empty() || traits(kind).splits_backward) return;
    const schedule::WorkerTable table(shape);
    const std::vector<WorkerPeaks> found = peaks(full_schedule(kind, shape));
    for (int w = 0; w < shape.num_workers(); ++w) {
      const auto [stage, replica] = table.held_by(WorkerId{w})[0];
      ASSERT_EQ(found[static_cast<size_t>(w)].stashed_micro_batches,
                documented_stash(kind, shape, stage, replica))
          << describe(kind, shape) << ", worker " << w;
    }
  });
}

TEST(Lowering, VersionsFollowTheDocumentedFormulas) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    if (kind == Strategy::ForwardOnly) return;
    for (const auto& list : full_schedule(kind, shape).workers) {
      for (const Action& action : list) {
        if (!is_compute(action.op)) continue;
        const bool latest_backward =
            backward_reads_newest(shape.policy) && action.op != Op::Forward;
        const int64_t expected =
            latest_backward ? action.mini_batch.value
                            : documented_version(shape, action.stage, action.micro_batch.value);
        ASSERT_EQ(action.version.value, expected)
            << describe(kind, shape) << ": " << to_text(action);
      }
    }
  });
}

TEST(Lowering, KeepsTheDocumentedNumberOfVersions) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    const schedule::WorkerTable table(shape);
    const std::vector<WorkerPeaks> found = peaks(full_schedule(kind, shape));
    for (int w = 0; w < shape.num_workers(); ++w) {
      const StageId stage = table.first_stage_of(WorkerId{w});
      const int64_t versions = found[static_cast<size_t>(w)].versions;
      const auto bound = [&](StageId s) {
        return (schedule::warmup_depths(shape)[s.index()] - 1) * shape.replicas[s.index()];
      };
      auto most = static_cast<int64_t>(table.held_by(WorkerId{w}).size());
      if (shape.policy == WeightPolicy::TwoBuffered) most = 2;
      if (shape.policy == WeightPolicy::Stash)
        most = 1 + (bound(stage) + shape.accumulate - 1) / shape.accumulate;
      if (shape.policy == WeightPolicy::VerticalSync)
        most = 1 + (bound(StageId{0}) + shape.accumulate - 1) / shape.accumulate;
      ASSERT_LE(versions, most) << describe(kind, shape) << ", worker " << w;
    }
  });
}

TEST(Lowering, StaysSoundWhenTheRunStopsAfterAnyMiniBatch) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    if (shape.micro_batches > 8) return;
    const Schedule full = full_schedule(kind, shape);
    for (int64_t last = 0; last + 1 < shape.num_mini_batches(); ++last) {
      Schedule cut = full;
      for (auto& list : cut.workers) {
        std::erase_if(list, [&](const Action& action) { return action.mini_batch.value > last; });
      }
      for (const Violation& violation :
           verify(cut, {.credits = enough_credits(kind, shape), .max_violations = 1'000'000})) {
        ASSERT_EQ(violation.rule, "complete")
            << describe(kind, shape) << ", stopped after " << last << ": " << violation.message;
      }
    }
  });
}

TEST(TextFormat, RoundTripsOverTheGrid) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    if (shape.accumulate % 3 != 1 || shape.micro_batches == 13) return;
    const Schedule compute = schedule::generate(kind, shape);
    ASSERT_EQ(schedule::parse_schedule(to_text(compute), "s.txt"), compute)
        << describe(kind, shape);
    const Schedule full = full_schedule(kind, shape);
    ASSERT_EQ(schedule::parse_schedule(to_text(full), "s.txt"), full) << describe(kind, shape);
  });
}

TEST(MinCredits, IsAtMostOneOnChainsUnlessInterleaved) {
  for_each_sample([](Strategy kind, const ScheduleShape& shape) {
    if (shape.accumulate % 3 != 1 || shape.micro_batches > 8) return;
    const int64_t credits = min_credits(full_schedule(kind, shape));
    ASSERT_GE(credits, 0) << describe(kind, shape);
    ASSERT_LE(credits, enough_credits(kind, shape)) << describe(kind, shape);
  });
}

RC_GTEST_PROP(RandomShapes, AreCleanWithSkipLinksAndEnoughCredits, ()) {
  const auto [kind, policy] = *rc::gen::elementOf(kinds_and_policies());
  ScheduleShape shape{
      .replicas = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 6))),
      .micro_batches = *rc::gen::inRange<int64_t>(0, 60),
      .accumulate = *rc::gen::inRange<int64_t>(1, 30),
      .policy = policy};
  if (shape.num_stages() > 8) shape.replicas.resize(8);
  if (kind == Strategy::Serial) shape.replicas = {1};
  if (kind == Strategy::DataParallel) shape.replicas.resize(1);
  if (kind == Strategy::TwoBuffered) shape.accumulate += schedule::pipeline_depth(shape);
  if (kind == Strategy::EagerOneFOneB) shape.slack = *rc::gen::inRange<int64_t>(0, 4);
  if (traits(kind).is_chunked()) {
    const int copies = *rc::gen::inRange(1, 3) * traits(kind).replicas_per_copy();
    shape.replicas.assign((shape.replicas.size() + 1) / 2 * 2, copies);
  }
  for (int s = 0; s < shape.num_stages(); ++s)
    shape.recompute.push_back(*rc::gen::inRange(0, 2) == 1);
  if (std::count(shape.recompute.begin(), shape.recompute.end(), true) == 0)
    shape.recompute.clear();
  for (int s = 0; s < shape.num_stages(); ++s)
    shape.offload.push_back(policy != WeightPolicy::Current && !shape.recomputes(StageId{s}) &&
                            *rc::gen::arbitrary<bool>());
  if (std::count(shape.offload.begin(), shape.offload.end(), true) == 0) shape.offload.clear();
  shape.global_norm = *rc::gen::arbitrary<bool>();
  const std::optional<ScheduleShape> hosted = shape_for(kind, shape);
  RC_ASSERT(hosted.has_value());
  shape = *hosted;

  std::vector<schedule::StageLink> links = schedule::chain_links(shape.num_stages());
  for (int from = 0; from < shape.num_stages(); ++from) {
    for (int to = from + 2; to < shape.num_stages(); ++to) {
      if (*rc::gen::inRange(0, 3) == 0) links.push_back({StageId{from}, StageId{to}});
    }
  }
  const Schedule full = schedule::lower(schedule::generate(kind, shape), links);
  const int64_t credits = min_credits(full);
  RC_ASSERT(credits >= 0);
  // Workers with several stages send several messages of a micro-batch along one channel.
  if (traits(kind).takes_keep) {
    RC_ASSERT(credits <= enough_credits(kind, shape));
  } else if (shape.worker_of_replica.empty()) {
    RC_ASSERT(credits <= most_under_way(shape));
  }
  RC_ASSERT(first_violation(full, std::max<int64_t>(credits, 1)) == "");
  RC_ASSERT(schedule::parse_schedule(to_text(full), "s.txt") == full);
}

}  // namespace penstock::verify::testing
