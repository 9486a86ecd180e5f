#include "penstock/simulate/refusals.h"

#include <fmt/format.h>

#include <string>

#include "penstock/schedule/formats/text_format.h"
#include "penstock/simulate/values.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::simulate::detail {

using schedule::Action;
using schedule::Op;

namespace {

std::string describe_wait(const BlockedWorker& blocked, int64_t credits) {
  const Action& action = blocked.action;
  const std::string at =
      fmt::format("worker {} is at {} and waits for ", blocked.worker, to_text(action));
  if (blocked.team) {
    return fmt::format("{}the other members of its team ({} of {} have arrived)", at,
                       blocked.arrived, blocked.expected);
  }
  const bool sum = !schedule::is_message(action.op) && action.op != Op::NormGradients;
  if (sum) {
    return fmt::format("{}the other replicas of stage {} ({} of {} have arrived)", at,
                       action.stage.value, blocked.arrived, blocked.expected);
  }
  if (action.op == Op::NormGradients)
    return fmt::format("{}all workers ({} of {} have arrived)", at, blocked.arrived,
                       blocked.expected);
  const int32_t other = blocked.other_end;
  if (schedule::is_receive(action.op)) {
    if (other < 0) return at + "a message that no worker sends";
    return fmt::format("{}worker {} to send it", at, other);
  }
  if (other < 0) return at + "a receive that no worker has";
  return fmt::format("{}worker {} to {}", at, other,
                     credits == 0 ? "receive it" : "receive an earlier message of the channel");
}

}  // namespace

void refuse_deadlock(const std::vector<BlockedWorker>& shown, int64_t blocked, int64_t credits) {
  std::string text;
  for (const BlockedWorker& worker : shown)
    text += (text.empty() ? "" : "; ") + describe_wait(worker, credits);
  const int64_t more = blocked - static_cast<int64_t>(shown.size());
  if (more > 0) text += fmt::format("; and {} more", more);
  throw ConfigError(fmt::format(
      "the schedule deadlocks with {} per channel: {}. Run `penstock verify` on it first.",
      plural(credits, "credit"), text));
}

void refuse_second_send(int32_t sender, const schedule::StageLink& link, bool backward,
                        int64_t micro_batch) {
  const Action send{.op = backward ? Op::SendBackward : Op::SendForward,
                    .stage = backward ? link.to : link.from,
                    .micro_batch = MicroBatchId{micro_batch},
                    .peer = backward ? link.from : link.to};
  throw ConfigError(
      fmt::format("worker {} sends a message that is already on its way: {}. Run `penstock verify` "
                  "on the schedule.",
                  sender, to_text(send)));
}

void refuse_messages_in_flight() {
  throw ConfigError(fmt::format(
      "more than {} messages wait to be received; simulate fewer micro-batches per step",
      kMaxMessagesInFlight));
}

}  // namespace penstock::simulate::detail
