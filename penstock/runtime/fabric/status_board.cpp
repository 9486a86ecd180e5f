#include "penstock/runtime/fabric/status_board.h"

#include <fmt/format.h>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/team_places.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;

namespace {

/// `exchange`: of a team; -1: none.
std::string describe_wait(const Action& action, int64_t exchange, int member) {
  const std::string text = schedule::to_text(action);
  if (exchange >= 0)
    return fmt::format("for the team's exchange {} with member {} in {}", exchange, member, text);
  if (schedule::is_receive(action.op))
    return fmt::format("for {} from stage {}", text, action.peer.value);
  if (schedule::is_send(action.op))
    return fmt::format("for room to {} (stage {} has not taken earlier messages)", text,
                       action.peer.value);
  if (action.op == Op::NormGradients) return fmt::format("for all other workers in {}", text);
  return fmt::format("for the other replicas in {}", text);
}

}  // namespace

std::vector<std::string> worker_labels(const schedule::ScheduleShape& shape) {
  const schedule::WorkerTable table(shape);
  const schedule::TeamPlaces places(shape.teams);
  std::vector<std::string> labels;
  for (int32_t w = 0; w < table.num_workers(); ++w) {
    std::string label;
    schedule::TeamPlace place;
    for (const auto& held : table.held_by(WorkerId{w})) {
      place = places.of(held.stage);
      label += fmt::format("{}{}", label.empty() ? "" : ", ", place.whole.value);
    }
    if (place.size > 1) label += fmt::format(", member {}", place.member);
    labels.push_back((table.held_by(WorkerId{w}).size() > 1 ? "stages " : "stage ") + label);
  }
  return labels;
}

std::string stage_label(const schedule::ScheduleShape& shape, StageId stage) {
  const schedule::TeamPlace place = schedule::place_in_team(shape, stage);
  const std::string label = fmt::format("stage {}", place.whole.value);
  return place.size == 1 ? label : fmt::format("{}, member {}", label, place.member);
}

Action in_plan(const schedule::TeamPlaces& places, Action action) {
  action.stage = places.of(action.stage).whole;
  if (schedule::is_receive(action.op) || schedule::is_send(action.op))
    action.peer = places.of(action.peer).whole;
  return action;
}

StatusBoard::StatusBoard(const schedule::ScheduleShape& shape)
    : labels_(worker_labels(shape)), places_(shape.teams), entries_(labels_.size()) {}

void StatusBoard::set(WorkerId worker, State state, const Action& action) {
  const Action of_plan = in_plan(places_, action);
  MutexLock lock(mutex_);
  entries_[worker.index()] = {state, of_plan, std::chrono::steady_clock::now()};
}

void StatusBoard::set(WorkerId worker, State state) {
  MutexLock lock(mutex_);
  entries_[worker.index()].state = state;
  entries_[worker.index()].since = std::chrono::steady_clock::now();
  entries_[worker.index()].exchange = -1;
}

void StatusBoard::wait_for_member(WorkerId worker, int64_t exchange, int member) {
  MutexLock lock(mutex_);
  entries_[worker.index()].exchange = exchange;
  entries_[worker.index()].member = member;
}

std::string StatusBoard::report() const {
  std::vector<WorkerId> all;
  for (size_t w = 0; w < labels_.size(); ++w) all.emplace_back(static_cast<int32_t>(w));
  return report(all);
}

std::string StatusBoard::report(const std::vector<WorkerId>& workers) const {
  MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  std::string text;
  for (const WorkerId worker : workers) {
    const size_t w = worker.index();
    const Entry& entry = entries_[w];
    const double seconds = std::chrono::duration<double>(now - entry.since).count();
    text += fmt::format("\n  worker {} ({}): ", w, labels_[w]);
    switch (entry.state) {
      case State::Idle:
        text += "has not started";
        break;
      case State::Computing:
        text += fmt::format("computes {} since {:.1f} s", schedule::to_text(entry.action), seconds);
        break;
      case State::Waiting:
        text += fmt::format("waits {:.1f} s {}", seconds,
                            describe_wait(entry.action, entry.exchange, entry.member));
        break;
      case State::Done:
        text += "is done";
        break;
      case State::Failed:
        text += fmt::format("failed in {}", schedule::to_text(entry.action));
        break;
    }
  }
  return text;
}

}  // namespace penstock::runtime
