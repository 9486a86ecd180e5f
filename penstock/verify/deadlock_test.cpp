// The deadlock rule against brute force, on random broken schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "penstock/verify/message_index.h"
#include "penstock/verify/testing_reference_model.h"
#include "penstock/verify/testing_schedules.h"
#include "penstock/verify/verify.h"
#include "penstock/verify/wait_graph.h"

namespace penstock::verify::testing {
namespace {

ScheduleShape random_shape(Strategy kind, WeightPolicy policy, std::mt19937& random) {
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  ScheduleShape shape{.replicas = {},
                      .micro_batches = up_to(6),
                      .accumulate = up_to(3),
                      .policy = policy,
                      .global_norm = up_to(2) == 1};
  const int stages = up_to(6);
  const int copies = up_to(2);
  const bool alike = traits(kind).is_chunked();
  for (int s = 0; s < stages; ++s) shape.replicas.push_back(alike ? copies : up_to(3));
  return shape;
}

/// Moves a few actions within their lists, mostly messages and syncs. Some changes leave out or
/// repeat an action. `moves_computations`: as often as others.
void disturb(Schedule& schedule, std::mt19937& random, bool moves_computations = false) {
  const auto below = [&](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  for (size_t changes = 1 + below(4); changes > 0; --changes) {
    auto& list = schedule.workers[below(schedule.workers.size())];
    if (list.size() < 2) continue;
    size_t from = below(list.size());
    for (int tries = 0; tries < (moves_computations ? 0 : 5) && is_compute(list[from].op); ++tries)
      from = below(list.size());
    const Action action = list[from];
    const size_t way = below(10);
    if (way != 0) list.erase(list.begin() + static_cast<int64_t>(from));
    if (way != 1) list.insert(list.begin() + static_cast<int64_t>(below(list.size() + 1)), action);
  }
}

void expect_proof(const Counterexample& found, const StuckWorkers& stuck, const std::string& text) {
  std::map<int, int64_t> blocked;
  for (const auto& stop : found.blocked) blocked[stop.worker.value] = stop.position;
  ASSERT_EQ(blocked, stuck.position) << text;
  ASSERT_TRUE(found.shortest);
  ASSERT_EQ(found.cycle.size(), shortest_cycle_length(stuck)) << text;
  for (size_t i = 0; i < found.cycle.size(); ++i) {
    const Counterexample::Wait& wait = found.cycle[i];
    ASSERT_EQ(wait.waits_for, found.cycle[(i + 1) % found.cycle.size()].worker) << text;
    ASSERT_EQ(wait.position, stuck.position.at(wait.worker.value)) << text;
    ASSERT_TRUE(stuck.waits_for.at(wait.worker.value).contains(wait.waits_for.value)) << text;
    ASSERT_GE(wait.worker, found.cycle[0].worker) << text;
  }
  if (!found.cycle.empty()) return;
  ASSERT_FALSE(found.abandoned.empty()) << text;
  for (const Counterexample::Wait& wait : found.abandoned) {
    ASSERT_TRUE(stuck.waits_for.at(wait.worker.value).contains(wait.waits_for.value)) << text;
    ASSERT_FALSE(stuck.position.contains(wait.waits_for.value)) << text;
  }
}

/// A search that is stopped at once still finds a cycle, or a worker waits for a list that has
/// ended.
void expect_proof_without_search(const Schedule& bad, int64_t credits, const StuckWorkers& stuck,
                                 const std::string& text) {
  const Facts facts(bad);
  const MessageIndex index(facts);
  Execution execution(facts, index, credits);
  ASSERT_FALSE(execution.run()) << text;
  const WaitGraph graph(execution, facts.table.num_workers());
  const WaitGraph::Cycle cycle = graph.shortest_cycle(0);
  ASSERT_TRUE(!cycle.workers.empty() || !graph.abandoned(1).empty()) << text;
  ASSERT_GE(cycle.workers.size(), cycle.workers.empty() ? 0 : shortest_cycle_length(stuck)) << text;
  for (size_t i = 0; i < cycle.workers.size(); ++i) {
    const int next = cycle.workers[(i + 1) % cycle.workers.size()].value;
    ASSERT_TRUE(stuck.waits_for.at(cycle.workers[i].value).contains(next)) << text;
  }
}

/// The deadlock that is found in the schedule, if there is one: the one that the reference model
/// comes to, with a proof.
std::optional<Counterexample> tried(const Schedule& bad, int64_t credits, unsigned seed) {
  const StuckWorkers stuck = ReferenceTransport(bad, credits).run();
  const std::string text =
      "seed " + std::to_string(seed) + ", credits " + std::to_string(credits) + "\n" + to_text(bad);
  auto found = find_deadlock(bad, credits);
  EXPECT_EQ(found.has_value(), !stuck.empty()) << text;
  if (found.has_value() != !stuck.empty() || !found) return {};
  expect_proof(*found, stuck, text);
  expect_proof_without_search(bad, credits, stuck, text);
  return found;
}

}  // namespace

TEST(Counterexample, IsTheShortestCycleOfARandomBrokenSchedule) {
  int stuck_schedules = 0;
  std::map<size_t, int> lengths;
  for (unsigned seed = 0; seed < 6000; ++seed) {
    std::mt19937 random(seed);
    const auto all = kinds_and_policies();
    const auto [kind, policy] = all[random() % all.size()];
    const auto shape = shape_for(kind, random_shape(kind, policy, random));
    if (!shape) continue;
    Schedule bad = full_schedule(kind, *shape);
    disturb(bad, random);
    const auto credits = static_cast<int64_t>(random() % 3);
    const auto found = tried(bad, credits, seed);
    if (HasFatalFailure()) return;
    if (!found) continue;
    ++stuck_schedules;
    ++lengths[found->cycle.size()];
  }
  EXPECT_GT(stuck_schedules, 2000);
  // Cycles of only one length would prove little.
  EXPECT_GE(lengths.size(), 5U);
}

TEST(Counterexample, IsTheShortestCycleOfARandomBrokenScheduleWithTeams) {
  int stuck_schedules = 0;
  int at_teams = 0;
  std::map<size_t, int> lengths;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto all = kinds_and_policies();
    const auto [kind, policy] = all[random() % all.size()];
    const auto shape = shape_for(kind, random_shape(kind, policy, random));
    if (!shape || shape->num_stages() > 8) continue;
    std::vector<int> teams;
    const auto one_size = static_cast<int>(1 + random() % 3);
    for (int32_t s = 0; s < shape->num_stages(); ++s)
      teams.push_back(traits(kind).is_chunked() ? one_size : static_cast<int>(1 + random() % 3));
    Schedule bad = team_schedule(kind, *shape, teams);
    disturb(bad, random, true);
    const auto credits = static_cast<int64_t>(random() % 4);
    const auto found = tried(bad, credits, seed);
    if (HasFatalFailure()) return;
    if (!found) continue;
    ++stuck_schedules;
    ++lengths[found->cycle.size()];
    for (const auto& [worker, position] : found->blocked) {
      const Op op = bad.workers[worker.index()][static_cast<size_t>(position)].op;
      at_teams += is_compute(op) ? 1 : 0;
    }
  }
  EXPECT_GT(stuck_schedules, 1000);
  EXPECT_GT(at_teams, 1000);
  EXPECT_GE(lengths.size(), 5U);
}

}  // namespace penstock::verify::testing
