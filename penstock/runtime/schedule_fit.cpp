#include "penstock/runtime/schedule_fit.h"

#include <fmt/format.h>

#include <map>

#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;
using schedule::Schedule;
using schedule::StageLink;

bool trains(const Schedule& schedule) {
  for (const auto& actions : schedule.workers) {
    for (const Action& action : actions) {
      if (schedule::makes_weight_gradients(action.op)) return true;
    }
  }
  return false;
}

namespace {

/// Messages along one link: the number that the computations need minus the number in the schedule.
struct Missing {
  int64_t values = 0;
  int64_t gradients = 0;
};

}  // namespace

void check_messages(const Schedule& schedule, const std::vector<StageLink>& links) {
  const schedule::WorkerTable table(schedule.shape);
  const auto stages = static_cast<size_t>(schedule.shape.num_stages());
  // by stage that makes, then stage that reads
  std::vector<std::map<StageId, Missing>> from(stages);
  std::vector<std::vector<StageId>> sources(stages);
  for (const StageLink& link : links) {
    from[link.from.index()][link.to];
    sources[link.to.index()].push_back(link.from);
  }
  const auto refuse = [](StageId maker, StageId reader) {
    throw ConfigError(fmt::format(
        "the schedule has messages from stage {} to stage {}, but no tensor flows there",
        maker.value, reader.value));
  };
  const auto missing = [&](StageId maker, StageId reader) -> Missing& {
    const bool known =
        maker.value >= 0 && maker.index() < stages && from[maker.index()].contains(reader);
    if (!known) refuse(maker, reader);
    return from[maker.index()][reader];
  };
  for (size_t w = 0; w < schedule.workers.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    for (const Action& action : schedule.workers[w]) {
      if (action.op == Op::RecvForward) --missing(action.peer, action.stage).values;
      if (action.op == Op::SendBackward) --missing(action.peer, action.stage).gradients;
      const bool forward = action.op == Op::Forward;
      if (!forward && !schedule::makes_input_gradients(action.op)) continue;
      for (const StageId maker : sources[action.stage.index()]) {
        if (table.worker_of(maker, action.micro_batch) == worker) continue;
        Missing& count = missing(maker, action.stage);
        ++(forward ? count.values : count.gradients);
      }
    }
  }
  for (size_t maker = 0; maker < stages; ++maker) {
    for (const auto& [reader, count] : from[maker]) {
      if (count.values == 0 && count.gradients == 0) continue;
      throw ConfigError(fmt::format(
          "the model sends {} from stage {} to stage {}, but the schedule has {} message for {} of "
          "them",
          count.values != 0 ? "tensors" : "the gradients of tensors", maker, reader.value,
          count.values > 0 || (count.values == 0 && count.gradients > 0) ? "no" : "more than one",
          std::abs(count.values != 0 ? count.values : count.gradients)));
    }
  }
}

}  // namespace penstock::runtime
