#include "penstock/runtime/fabric/local/tensor_exchange.h"

#include <algorithm>

#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

TensorExchange::TensorExchange(const schedule::Schedule& schedule, int64_t credits)
    : table_(schedule.shape), credits_(static_cast<size_t>(std::max<int64_t>(credits, 1))) {
  for (const std::vector<Action>& actions : schedule.workers) {
    for (const Action& action : actions) {
      if (!schedule::is_send(action.op)) continue;
      auto& slot = channels_[key_of({.backward = action.op == schedule::Op::SendBackward,
                                     .from = action.stage,
                                     .to = action.peer,
                                     .micro_batch = action.micro_batch})];
      if (!slot) slot = std::make_unique<Channel>();
    }
  }
}

TensorExchange::Key TensorExchange::key_of(const Message& message) const {
  return {table_.worker_of(message.from, message.micro_batch),
          table_.worker_of(message.to, message.micro_batch), message.backward};
}

TensorExchange::Channel& TensorExchange::channel(const Message& message) const {
  const auto found = channels_.find(key_of(message));
  PENSTOCK_CHECK(found != channels_.end(), "no channel from stage", message.from, "to stage",
                 message.to, "for micro-batch", message.micro_batch);
  return *found->second;
}

WaitResult TensorExchange::send(const Message& message, model::Tensors tensors, Wait& wait) {
  const Stopwatch stopwatch(wait);
  Channel& c = channel(message);
  MutexLock lock(c.mutex);
  const bool ready = c.changed.wait_awake_until(
      c.mutex, wait.deadline,
      [&]() NO_THREAD_SAFETY_ANALYSIS { return c.closed || c.messages.size() < credits_; });
  if (c.closed) return WaitResult::Closed;
  if (!ready) return WaitResult::TimedOut;
  const bool inserted = c.messages.emplace(message, std::move(tensors)).second;
  PENSTOCK_CHECK(inserted, "message sent twice: stages", message.from, message.to, "micro-batch",
                 message.micro_batch);
  c.changed.notify_all();
  return WaitResult::Ready;
}

WaitResult TensorExchange::receive(const Message& message, model::Tensors& tensors, Wait& wait) {
  const Stopwatch stopwatch(wait);
  Channel& c = channel(message);
  MutexLock lock(c.mutex);
  const bool ready = c.changed.wait_awake_until(
      c.mutex, wait.deadline,
      [&]() NO_THREAD_SAFETY_ANALYSIS { return c.closed || c.messages.contains(message); });
  if (c.closed) return WaitResult::Closed;
  if (!ready) return WaitResult::TimedOut;
  auto node = c.messages.extract(message);
  tensors = std::move(node.mapped());
  c.changed.notify_all();
  return WaitResult::Ready;
}

void TensorExchange::close() {
  for (auto& [key, c] : channels_) {
    MutexLock lock(c->mutex);
    c->closed = true;
    c->changed.notify_all();
  }
}

}  // namespace penstock::runtime
