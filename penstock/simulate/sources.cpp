#include "penstock/simulate/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/mixing_hash.h"

namespace penstock::simulate::detail {

using schedule::Action;
using schedule::Op;

namespace {

const schedule::Schedule& checked(const schedule::Schedule& schedule) {
  if (!schedule.lowered)
    throw ConfigError("the schedule holds compute actions only; lower() it before simulating it");
  schedule::validate(schedule.shape);
  if (schedule.workers.size() != static_cast<size_t>(schedule.shape.num_workers())) {
    throw ConfigError(fmt::format("the schedule has {} workers, its replicas are {}",
                                  schedule.workers.size(), schedule.shape.num_workers()));
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

/// The links of the messages seen.
class InMemorySource::LinkSet {
 public:
  void add(const Action& message) {
    const schedule::StageLink link = link_of(message);
    schedule::StageLink& last = last_[static_cast<size_t>(message.op)];
    if (link == last) return;  // neighbours in a list usually use one link
    last = link;
    links_.insert(static_cast<uint64_t>(link.from.value) << 32 |
                  static_cast<uint64_t>(link.to.value));
  }

  std::vector<schedule::StageLink> sorted() const {
    std::vector<schedule::StageLink> links;
    links.reserve(links_.size());
    for (const uint64_t link : links_) {
      links.push_back({StageId{static_cast<int32_t>(link >> 32)},
                       StageId{static_cast<int32_t>(link & INT32_MAX)}});
    }
    std::sort(links.begin(), links.end());
    return links;
  }

 private:
  static constexpr size_t kOps = static_cast<size_t>(Op::FreeWeights) + 1;
  std::array<schedule::StageLink, kOps> last_ = filled();
  std::unordered_set<uint64_t, MixingHash> links_;

  static std::array<schedule::StageLink, kOps> filled() {
    std::array<schedule::StageLink, kOps> none;
    none.fill({StageId{-1}, StageId{-1}});
    return none;
  }
};

InMemorySource::InMemorySource(const schedule::Schedule& schedule)
    : schedule_(checked(schedule)), table_(schedule.shape) {
  stages_.resize(schedule.workers.size());
  LinkSet links;
  for (size_t w = 0; w < schedule.workers.size(); ++w) scan_worker(w, links);
  links_ = links.sorted();
}

void InMemorySource::check_action(size_t worker, const Action& action) const {
  const int num_stages = shape().num_stages();
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("worker {}: {} {}", worker, to_text(action), why));
  };
  const bool known = action.stage.value >= 0 && action.stage.value < num_stages &&
                     action.peer.value >= 0 && action.peer.value < num_stages;
  if (!known)
    refuse(fmt::format("names a stage that does not exist; there are {} stages", num_stages));
  if (action.micro_batch.value < 0 || action.mini_batch.value < 0) refuse("has a negative number");
  if (!schedule::is_message(action.op)) return;
  const int32_t owner = table_.worker_of(action.stage, action.micro_batch).value;
  if (static_cast<size_t>(owner) != worker) {
    refuse(fmt::format("belongs to worker {}, which runs micro-batch {} of stage {}", owner,
                       action.micro_batch.value, action.stage.value));
  }
}

void InMemorySource::scan_worker(size_t worker, LinkSet& links) {
  const auto held = table_.held_by(WorkerId{static_cast<int32_t>(worker)});
  std::vector<HeldStage> stages;
  for (const auto& unit : held) stages.push_back({.stage = unit.stage});
  std::vector<bool> occurs(stages.size());
  for (const Action& action : schedule_.workers[worker]) {
    check_action(worker, action);
    const auto place =
        std::lower_bound(held.begin(), held.end(), action.stage,
                         [](const auto& unit, StageId stage) { return unit.stage < stage; });
    if (place == held.end() || place->stage != action.stage) {
      throw ConfigError(fmt::format("worker {}: {} is of a stage that it does not hold", worker,
                                    to_text(action)));
    }
    const auto number = static_cast<size_t>(place - held.begin());
    occurs[number] = true;
    if (schedule::makes_weight_gradients(action.op)) stages[number].trains = true;
    if (schedule::is_message(action.op)) links.add(action);
  }
  num_actions_ += static_cast<int64_t>(schedule_.workers[worker].size());
  for (size_t i = 0; i < stages.size(); ++i) {
    if (occurs[i]) stages_[worker].push_back(stages[i]);
  }
}

int32_t InMemorySource::other_end(const Action& message) const {
  const Op op = other_op(message.op);
  for (size_t w = 0; w < schedule_.workers.size(); ++w) {
    for (const Action& action : schedule_.workers[w]) {
      const bool matches = action.op == op && action.stage == message.peer &&
                           action.peer == message.stage &&
                           action.micro_batch == message.micro_batch;
      if (matches) return static_cast<int32_t>(w);
    }
  }
  return -1;
}

LazySource::LazySource(const schedule::LazySchedule& schedule) : schedule_(schedule) {
  const auto& targets = schedule.neighbours().targets;
  for (size_t s = 0; s < targets.size(); ++s) {
    for (const StageId target : targets[s])
      links_.push_back({StageId{static_cast<int32_t>(s)}, target});
  }
}

std::vector<HeldStage> LazySource::stages_of(int32_t worker) const {
  const bool works = cursor(worker).count > 0;
  const bool steps = !schedule_.forward_only() && shape().micro_batches > 0;
  if (!works && !steps) return {};
  return {{.stage = table().first_stage_of(WorkerId{worker}), .trains = works && steps}};
}

}  // namespace penstock::simulate::detail
