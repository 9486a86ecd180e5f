// team: the members of a team (of each replica) compute the same in the same order: F, R, B, I and
// W of their stage, micro-batch, version and steps ahead. In each of them they wait for each other,
// so two in another order on one member are a deadlock inside these actions.
//
// Smallest schedule that breaks it: one stage, a team of two, two micro-batches, `0F0,0F1` on one
// member and `1F1,1F0` on the other.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

/// Where the compute actions of a list are, from some position on.
size_t next_compute(const std::vector<Action>& list, size_t from) {
  while (from < list.size() && !is_compute(list[from].op)) ++from;
  return from;
}

class TeamRule {
 public:
  TeamRule(const Facts& facts, Report& report)
      : facts_(facts), report_(report), compared_(facts.workers().size(), 0) {}

  /// Compares the member's worker with that of member 0 of the same replica.
  void check(StageId stage, int replica) {
    const schedule::TeamPlace place = facts_.places.of(stage);
    const WorkerId first = facts_.table.worker_of_replica(place.first, replica);
    const WorkerId worker = facts_.table.worker_of_replica(stage, replica);
    // A worker with several stages is compared once: with all of them.
    if (std::exchange(compared_[worker.index()], 1) != 0) return;
    if (!holds_the_same(first, worker, place.member)) return;
    const std::vector<Action>& expected = facts_.workers()[first.index()];
    const std::vector<Action>& found = facts_.workers()[worker.index()];
    size_t i = next_compute(expected, 0);
    size_t j = next_compute(found, 0);
    int64_t number = 0;
    for (; i < expected.size() && j < found.size(); ++number) {
      if (!is_same(expected[i], found[j]))
        return differ(first, expected[i], worker, found[j], number);
      i = next_compute(expected, i + 1);
      j = next_compute(found, j + 1);
    }
    if (i < expected.size()) return is_missing(first, expected[i], worker, number);
    if (j < found.size()) is_missing(worker, found[j], first, number);
  }

 private:
  /// One worker has the same stages as the other, all of them as this member.
  bool holds_the_same(WorkerId first, WorkerId worker, int member) {
    const auto expected = facts_.table.held_by(first);
    const auto found = facts_.table.held_by(worker);
    bool same = expected.size() == found.size();
    for (size_t i = 0; same && i < found.size(); ++i) {
      const schedule::TeamPlace place = facts_.places.of(found[i].stage);
      same = place.first == expected[i].stage && place.member == member &&
             found[i].replica == expected[i].replica;
    }
    if (!same) {
      report_.add("team", worker,
                  "expected member {} of each stage of which worker {} has member 0", member,
                  first.value);
    }
    return same;
  }

  bool is_same(const Action& a, const Action& b) const {
    return a.op == b.op && a.micro_batch == b.micro_batch && a.with_next == b.with_next &&
           a.version == b.version && a.ahead == b.ahead &&
           facts_.places.of(a.stage).whole == facts_.places.of(b.stage).whole;
  }

  std::string name_of(const Action& action, WorkerId worker) const {
    const schedule::TeamPlace place = facts_.places.of(action.stage);
    return fmt::format("member {} of stage {}, on worker {},", place.member, place.whole.value,
                       worker.value);
  }

  void differ(WorkerId first, const Action& expected, WorkerId worker, const Action& found,
              int64_t number) {
    report_.add("team", worker, found,
                "is compute action {} here, where {} has {}: the members of a team wait for each "
                "other inside these actions, so they need the same in the same order",
                number, name_of(expected, first), to_text(expected));
  }

  void is_missing(WorkerId has, const Action& action, WorkerId lacks, int64_t number) {
    report_.add("team", has, action,
                "is compute action {} of {} and worker {}, a member of the same team, ends before "
                "it: it would wait forever",
                number, name_of(action, has), lacks.value);
  }

  const Facts& facts_;
  Report& report_;
  std::vector<uint8_t> compared_;  // by worker
};

}  // namespace

void check_team(const Facts& facts, Report& report) {
  const schedule::ScheduleShape& shape = facts.schedule.shape;
  if (shape.teams.empty()) return;
  TeamRule rule(facts, report);
  int32_t stage = 0;
  for (const int size : shape.teams) {
    for (int member = 0; member < size; ++member, ++stage) {
      const int replicas = shape.replicas[static_cast<size_t>(stage)];
      for (int k = 0; member > 0 && k < replicas && !report.full(); ++k)
        rule.check(StageId{stage}, k);
    }
  }
}

}  // namespace penstock::verify
