#include "penstock/simulate/sources.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/schedule/text_format.h"
#include "penstock/util/error.h"

namespace penstock::simulate::detail {

using schedule::Action;
using schedule::Op;

namespace {

const schedule::Schedule& checked(const schedule::Schedule& schedule) {
  if (!schedule.lowered) throw ConfigError("the schedule holds compute actions only; lower() it before simulating it");
  schedule::validate(schedule.shape);
  if (schedule.workers.size() != static_cast<size_t>(schedule.shape.num_workers())) {
    throw ConfigError(
        fmt::format("the schedule has {} workers, its replicas are {}", schedule.workers.size(), schedule.shape.num_workers()));
  }
  return schedule;
}

Op other_op(Op op) {
  switch (op) {
    case Op::SendForward:
      return Op::RecvForward;
    case Op::RecvForward:
      return Op::SendForward;
    case Op::SendBackward:
      return Op::RecvBackward;
    default:
      return Op::SendBackward;
  }
}

}  // namespace

InMemorySource::InMemorySource(const schedule::Schedule& schedule) : schedule_(checked(schedule)), table_(schedule.shape) {
  stages_.resize(schedule.workers.size());
  trains_.resize(schedule.workers.size());
  positions_.resize(schedule.workers.size());
  for (size_t w = 0; w < schedule.workers.size(); ++w) scan_worker(w);
}

void InMemorySource::scan_worker(size_t worker) {
  const int num_stages = shape().num_stages();
  std::vector<StageId>& stages = stages_[worker];
  std::vector<schedule::StageLink> links;  // of this worker: few, so they are searched
  for (const Action& action : schedule_.workers[worker]) {
    const bool known =
        action.stage.value >= 0 && action.stage.value < num_stages && action.peer.value >= 0 && action.peer.value < num_stages;
    if (!known) {
      throw ConfigError(
          fmt::format("worker {}: {} names a stage that does not exist; there are {} stages", worker, to_text(action), num_stages));
    }
    if (action.micro_batch.value < 0 || action.mini_batch.value < 0) {
      throw ConfigError(fmt::format("worker {}: {} has a negative number", worker, to_text(action)));
    }
    if (std::find(stages.begin(), stages.end(), action.stage) == stages.end()) stages.push_back(action.stage);
    if (action.op == Op::Backward) trains_[worker] = true;
    if (!schedule::is_message(action.op)) continue;
    const schedule::StageLink link = link_of(action);
    if (std::find(links.begin(), links.end(), link) == links.end()) links.push_back(link);
  }
  num_actions_ += static_cast<int64_t>(schedule_.workers[worker].size());
  for (const schedule::StageLink& link : links) {
    const auto place = std::lower_bound(links_.begin(), links_.end(), link);
    if (place == links_.end() || *place != link) links_.insert(place, link);
  }
}

int32_t InMemorySource::other_end(const Action& message) const {
  const Op op = other_op(message.op);
  for (size_t w = 0; w < schedule_.workers.size(); ++w) {
    for (const Action& action : schedule_.workers[w]) {
      const bool matches =
          action.op == op && action.stage == message.peer && action.peer == message.stage && action.micro_batch == message.micro_batch;
      if (matches) return static_cast<int32_t>(w);
    }
  }
  return -1;
}

LazySource::LazySource(const schedule::LazySchedule& schedule) : schedule_(schedule) {
  const auto& targets = schedule.neighbours().targets;
  for (size_t s = 0; s < targets.size(); ++s) {
    for (const StageId target : targets[s]) links_.push_back({StageId{static_cast<int32_t>(s)}, target});
  }
  cursors_.reserve(static_cast<size_t>(table().num_workers()));
  for (int32_t w = 0; w < table().num_workers(); ++w) cursors_.push_back(schedule.cursor(WorkerId{w}));
}

// A worker is never more forwards ahead of its backwards than its warm-up, that is the workers of the pipeline, or a mini-batch under
// gpipe.
int64_t LazySource::most_in_channel() const {
  if (schedule_.forward_only()) return shape().micro_batches;
  const int64_t ahead = schedule_.kind() == schedule::Kind::GPipe ? shape().accumulate : table().num_workers();
  return std::min(shape().micro_batches, ahead);
}

std::vector<StageId> LazySource::stages_of(int32_t worker) const {
  const bool idle = schedule_.forward_only() && cursors_[static_cast<size_t>(worker)].count == 0;
  if (idle) return {};
  return {table().stage_of(WorkerId{worker})};
}

}  // namespace penstock::simulate::detail
