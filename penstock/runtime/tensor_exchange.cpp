#include "penstock/runtime/tensor_exchange.h"

#include <algorithm>

#include "penstock/schedule/worker_table.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

TensorExchange::TensorExchange(const schedule::Schedule& schedule, int64_t credits)
    : credits_(static_cast<size_t>(std::max<int64_t>(credits, 1))) {
  const schedule::WorkerTable table(schedule.shape);
  for (size_t w = 0; w < schedule.workers.size(); ++w) {
    for (const Action& action : schedule.workers[w]) {
      if (!schedule::is_send(action.op)) continue;
      const Key key{WorkerId{static_cast<int32_t>(w)},
                    table.worker_of(action.peer, action.micro_batch),
                    action.op == schedule::Op::SendBackward};
      auto& slot = channels_[key];
      if (!slot) slot = std::make_unique<Channel>();
    }
  }
}

TensorExchange::Channel& TensorExchange::channel(const Key& key) const {
  const auto found = channels_.find(key);
  PENSTOCK_CHECK(found != channels_.end(), "no channel from worker", key.from, "to", key.to);
  return *found->second;
}

WaitResult TensorExchange::send(WorkerId from, WorkerId to, bool backward, const MessageName& name,
                                model::Tensors tensors, CondVar::Deadline deadline) {
  Channel& c = channel({from, to, backward});
  MutexLock lock(c.mutex);
  const bool ready = c.changed.wait_until(c.mutex, deadline, [&]() NO_THREAD_SAFETY_ANALYSIS {
    return c.closed || c.messages.size() < credits_;
  });
  if (c.closed) return WaitResult::Closed;
  if (!ready) return WaitResult::TimedOut;
  const bool inserted = c.messages.emplace(name, std::move(tensors)).second;
  PENSTOCK_CHECK(inserted, "message sent twice: stages", name.from, name.to, "micro-batch",
                 name.micro_batch);
  c.changed.notify_all();
  return WaitResult::Ready;
}

WaitResult TensorExchange::receive(WorkerId from, WorkerId to, bool backward,
                                   const MessageName& name, model::Tensors& tensors,
                                   CondVar::Deadline deadline) {
  Channel& c = channel({from, to, backward});
  MutexLock lock(c.mutex);
  const bool ready = c.changed.wait_until(c.mutex, deadline, [&]() NO_THREAD_SAFETY_ANALYSIS {
    return c.closed || c.messages.contains(name);
  });
  if (c.closed) return WaitResult::Closed;
  if (!ready) return WaitResult::TimedOut;
  auto node = c.messages.extract(name);
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
