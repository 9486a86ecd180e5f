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
#include "penstock/runtime/barrier.h"
#include "penstock/schedule/schedule.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

struct MessageName {
  StageId from;
  StageId to;
  MicroBatchId micro_batch;
  auto operator<=>(const MessageName&) const = default;
};

/// Thread-safe. Set up before the workers start.
class TensorExchange {
 public:
  /// Opens the channels that the schedule's messages use, each with room for `credits` messages (at
  /// least 1).
  TensorExchange(const schedule::Schedule& schedule, int64_t credits);

  /// Blocks while the channel is full. On Ready the exchange holds the tensors until they are
  /// received.
  WaitResult send(WorkerId from, WorkerId to, bool backward, const MessageName& name,
                  model::Tensors tensors, CondVar::Deadline deadline);
  /// Blocks until the message is there.
  WaitResult receive(WorkerId from, WorkerId to, bool backward, const MessageName& name,
                     model::Tensors& tensors, CondVar::Deadline deadline);
  /// Wakes everybody; all later calls return Closed.
  void close();

 private:
  struct Channel {
    Mutex mutex;
    CondVar changed;
    std::map<MessageName, model::Tensors> messages GUARDED_BY(mutex);
    bool closed GUARDED_BY(mutex) = false;
  };
  struct Key {
    WorkerId from;
    WorkerId to;
    bool backward;
    auto operator<=>(const Key&) const = default;
  };
  Channel& channel(const Key& key) const;

  size_t credits_;
  std::map<Key, std::unique_ptr<Channel>> channels_;
};

}  // namespace penstock::runtime
