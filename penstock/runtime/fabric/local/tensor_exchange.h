// Messages between the workers of one process: tensors by reference, through one bounded channel
// per ordered pair of workers and direction. A message is found by its name (stages, micro-batch),
// never by its place in a queue, so receives are not tied to the order of sends.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/runtime/fabric/message.h"
#include "penstock/runtime/fabric/wait.h"
#include "penstock/schedule/schedule.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe. Set up before the workers start.
class TensorExchange {
 public:
  /// Opens the channels that the schedule's messages use, each with room for `credits` messages (at
  /// least 1).
  TensorExchange(const schedule::Schedule& schedule, int64_t credits);

  /// Fabric::send() and receive(). On Ready the exchange holds the tensors until they are received.
  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait);
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait);
  /// Wakes everybody; all later calls return Closed.
  void close();

 private:
  struct Channel {
    Mutex mutex;
    CondVar changed;
    std::map<Message, model::Tensors> messages GUARDED_BY(mutex);
    bool closed GUARDED_BY(mutex) = false;
  };
  struct Key {
    WorkerId from;
    WorkerId to;
    bool backward;
    auto operator<=>(const Key&) const = default;
  };
  Key key_of(const Message& message) const;
  Channel& channel(const Message& message) const;

  schedule::WorkerTable table_;
  size_t credits_;
  std::map<Key, std::unique_ptr<Channel>> channels_;
};

}  // namespace penstock::runtime
