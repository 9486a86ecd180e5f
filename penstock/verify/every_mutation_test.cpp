// Every single change of one action, in small schedules of many kinds: verify() reports a violation
// exactly when the slow reference model does.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "penstock/verify/testing_reference_model.h"
#include "penstock/verify/testing_schedules.h"
#include "penstock/verify/verify.h"

namespace penstock::verify::testing {
namespace {

struct Sample {
  Strategy kind;
  ScheduleShape shape;
};

std::vector<Sample> samples() {
  std::vector<Sample> result = {
      {Strategy::Serial,
       {.replicas = {1},
        .micro_batches = 3,
        .accumulate = 2,
        .recompute = {true},
        .global_norm = true}},
      {Strategy::DataParallel,
       {.replicas = {3}, .micro_batches = 4, .accumulate = 3, .global_norm = true}},
      {Strategy::GPipe, {.replicas = {1, 1}, .micro_batches = 3, .accumulate = 2}},
      {Strategy::OneFOneBFlush,
       {.replicas = {2, 1},
        .micro_batches = 4,
        .accumulate = 2,
        .recompute = {true, false},
        .global_norm = true}},
      {Strategy::OneFOneBFlush, {.replicas = {1, 1, 1}, .micro_batches = 2, .accumulate = 1}},
      {Strategy::EagerOneFOneB,
       {.replicas = {1, 1, 1}, .micro_batches = 4, .accumulate = 4, .slack = 1}},
      {Strategy::ZbH1,
       {.replicas = {1, 1}, .micro_batches = 4, .accumulate = 2, .global_norm = true}},
      {Strategy::ZbH1,
       {.replicas = {1, 2}, .micro_batches = 3, .accumulate = 3, .recompute = {true, true}}},
      {Strategy::ZbH2, {.replicas = {1, 1, 1}, .micro_batches = 5, .accumulate = 3}},
      {Strategy::Interleaved,
       {.replicas = {1, 1, 1, 1},
        .micro_batches = 2,
        .accumulate = 1,
        .recompute = {true, false, false, true}}},
      {Strategy::Interleaved,
       {.replicas = {2, 2, 2, 2}, .micro_batches = 3, .accumulate = 2, .global_norm = true}},
      {Strategy::InterleavedZb, {.replicas = {1, 1, 1, 1}, .micro_batches = 3, .accumulate = 2}},
      {Strategy::ZbV,
       {.replicas = {1, 1, 1, 1}, .micro_batches = 3, .accumulate = 2, .global_norm = true}},
      {Strategy::ZbV, {.replicas = {1, 1}, .micro_batches = 2, .accumulate = 1}},
      {Strategy::VHalf,
       {.replicas = {1, 1, 1, 1}, .micro_batches = 3, .accumulate = 2, .global_norm = true}},
      {Strategy::VMin,
       {.replicas = {1, 1, 1, 1},
        .micro_batches = 3,
        .accumulate = 3,
        .recompute = {true, false, false, true}}},
      {Strategy::DualPipeV,
       {.replicas = {1, 1, 1, 1},
        .micro_batches = 4,
        .accumulate = 4,
        .recompute = {false, true, true, false}}},
      {Strategy::DualPipe, {.replicas = {2, 2}, .micro_batches = 4, .accumulate = 4}},
      {Strategy::DualPipe,
       {.replicas = {2, 2}, .micro_batches = 5, .accumulate = 4, .recompute = {true, false}}},
      {Strategy::Chimera,
       {.replicas = {2, 2}, .micro_batches = 3, .accumulate = 2, .global_norm = true}},
      {Strategy::Chimera,
       {.replicas = {2, 2, 2, 2},
        .micro_batches = 4,
        .accumulate = 2,
        .recompute = {true, true, true, true}}},
      {Strategy::TwoBuffered,
       {.replicas = {1, 1},
        .micro_batches = 5,
        .accumulate = 2,
        .policy = WeightPolicy::TwoBuffered}},
  };
  result.push_back(
      {Strategy::GPipe,
       {.replicas = {1, 1}, .micro_batches = 4, .accumulate = 4, .offload = {true, true}}});
  result.push_back({Strategy::OneFOneBFlush,
                    {.replicas = {1, 1, 1, 1},
                     .micro_batches = 5,
                     .accumulate = 5,
                     .recompute = {false, true, false, false},
                     .offload = {true, false, false, false}}});
  result.push_back({Strategy::ZbH2,
                    {.replicas = {1, 1, 1},
                     .micro_batches = 5,
                     .accumulate = 5,
                     .offload = {true, true, true}}});
  for (const WeightPolicy policy :
       {WeightPolicy::Stash, WeightPolicy::VerticalSync, WeightPolicy::Latest}) {
    result.push_back(
        {Strategy::OneFOneB,
         {.replicas = {1, 1, 1}, .micro_batches = 4, .accumulate = 1, .policy = policy}});
    result.push_back({Strategy::OneFOneB,
                      {.replicas = {2, 1},
                       .micro_batches = 4,
                       .accumulate = 2,
                       .policy = policy,
                       .recompute = {true, true}}});
  }
  return result;
}

/// Changes that turn one action into another; changes to fields that no part of the system reads
/// (the micro-batch of a STEP, say) are left out.
std::vector<Action> variants(const Action& action) {
  std::vector<Action> result;
  const auto add = [&](const std::function<void(Action&)>& change) {
    Action changed = action;
    change(changed);
    result.push_back(changed);
  };
  const bool of_micro_batch = has_micro_batch(action.op);
  const bool has_version =
      is_compute(action.op) || action.op == Op::Step || action.op == Op::FreeWeights;
  for (const int by : {-1, 1}) {
    add([&](Action& a) {
      a.stage.value += by;
      a.peer.value += by;
    });
    add([&](Action& a) { a.mini_batch.value += by; });
    if (of_micro_batch) add([&](Action& a) { a.micro_batch.value += by; });
    if (is_message(action.op)) add([&](Action& a) { a.peer.value += by; });
    if (has_version) add([&](Action& a) { a.version.value += by; });
  }
  for (int op = 0; op <= static_cast<int>(Op::FreeWeights); ++op) {
    const auto other = static_cast<Op>(op);
    // Only between similar actions: an F that becomes a STEP lacks the fields of a STEP.
    if (other == action.op || is_message(other) != is_message(action.op) ||
        is_compute(other) != is_compute(action.op) || is_move(other) != is_move(action.op))
      continue;
    add([&](Action& a) { a.op = other; });
  }
  return result;
}

class Comparison {
 public:
  explicit Comparison(const Sample& sample)
      : sample_(sample),
        shape_(shape_for(sample.kind, sample.shape).value()),
        good_(full_schedule(sample.kind, shape_)),
        credits_(min_credits(good_)) {}

  void run() {
    compare(good_, "unchanged");
    for (size_t w = 0; w < good_.workers.size(); ++w) {
      for (size_t i = 0; i < good_.workers[w].size() && !::testing::Test::HasFailure(); ++i)
        change_action(w, i);
    }
    EXPECT_GT(unsound_, 200);
    EXPECT_GT(sound_, 10);
  }

 private:
  using List = std::vector<Action>;

  void change_action(size_t w, size_t i) {
    const Action action = good_.workers[w][i];
    const auto edit = [&](const std::string& name,
                          const std::function<void(Schedule&, List&)>& change) {
      Schedule bad = good_;
      change(bad, bad.workers[w]);
      compare(bad, name + " " + to_text(action) + " on worker " + std::to_string(w));
    };
    const auto at = static_cast<int64_t>(i);
    edit("drop", [&](Schedule&, List& list) { list.erase(list.begin() + at); });
    edit("repeat", [&](Schedule&, List& list) { list.insert(list.begin() + at, action); });
    for (int64_t to = 0; to < static_cast<int64_t>(good_.workers[w].size()); ++to) {
      if (to == at) continue;
      edit("move to " + std::to_string(to), [&](Schedule&, List& list) {
        list.erase(list.begin() + at);
        list.insert(list.begin() + to, action);
      });
    }
    for (size_t other = 0; other < good_.workers.size(); ++other) {
      if (other == w) continue;
      edit("move to worker " + std::to_string(other), [&](Schedule& bad, List& list) {
        list.erase(list.begin() + at);
        List& target = bad.workers[other];
        target.insert(target.begin() + std::min<int64_t>(at, static_cast<int64_t>(target.size())),
                      action);
      });
    }
    for (const Action& changed : variants(action)) {
      edit("make " + to_text(changed) + " of", [&](Schedule&, List& list) { list[i] = changed; });
    }
  }

  void compare(const Schedule& schedule, const std::string& name) {
    const std::vector<Violation> violations = verify(schedule, {.credits = credits_});
    const bool sound = is_sound(schedule, credits_);
    ++(sound ? sound_ : unsound_);
    EXPECT_EQ(violations.empty(), sound)
        << describe(sample_.kind, shape_) << ": " << name << "\n"
        << (violations.empty() ? "no violation" : violations[0].message) << "\n"
        << to_text(schedule);
  }

  Sample sample_;
  ScheduleShape shape_;
  Schedule good_;
  int64_t credits_;
  int sound_ = 0;
  int unsound_ = 0;
};

}  // namespace

TEST(EveryMutation, GetsTheSameVerdictAsFromTheReferenceModel) {
  for (const Sample& sample : samples()) Comparison(sample).run();
}

}  // namespace penstock::verify::testing
