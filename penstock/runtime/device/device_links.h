// Messages between GPUs of different ranks that stay in the memory of GPUs. A message goes in two
// parts: its tensors by a link (fabric/device_link.h), and by the fabric, as any other message, a
// byte for each tensor that says whether it is defined. So the fabric knows of every message and
// notices a lost peer, and nobody queues a receive for what will not come.
//
//   links.open(schedule, devices, wait);                        // on all ranks
//   fabric.send(message, {links.send(message, tensors)}, wait);  // the sender's thread
//   fabric.receive(message, mask, wait);                         // the receiver's
//   Tensors tensors = links.receive(message, mask.front());
//
// There is a link for each two workers, pair of stages and direction. Tensors are matched by their
// order on it, which has to be that of the schedule at both ends. Internal to runtime.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/fabric/device_link.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/schedule/worker_table.h"

namespace penstock::runtime {

/// Outlives the runs of its pipeline: a link is made once. Thread-safe, as long as calls for one
/// worker come from one thread.
class DeviceLinks {
 public:
  explicit DeviceLinks(World& world) : world_(world) {}
  ~DeviceLinks();

  /// Makes the links that the schedule needs and that are not there yet. Collective. `devices`: by
  /// worker, null for those of other ranks; they must outlive this. Throws ConfigError where a
  /// worker of this rank is on the CPU, or the receiver takes messages in another order than the
  /// sender sends them; TransportError and TimeoutError where a link cannot be made.
  void open(const schedule::Schedule& schedule,
            const std::vector<std::unique_ptr<WorkerDevice>>& devices, Wait& wait);

  /// Whether the message goes between two ranks, so by a link.
  bool carries(const Message& message) const;

  /// Queues the tensors behind the work of the sender's device. Returns which are defined: [n]
  /// bytes in the host's memory. They have to be of the layout.
  at::Tensor send(const Message& message, model::Tensors tensors,
                  const std::vector<TensorLayout>& layout);
  /// Queues the receive; later work of the receiver's device waits for it. Nobody else has the
  /// tensors.
  model::Tensors receive(const Message& message, const at::Tensor& defined,
                         const std::vector<TensorLayout>& layout);

  /// Ends what is queued on all links, of which none can be used later.
  void abort() noexcept;

 private:
  struct Key {
    WorkerId from;
    WorkerId to;
    bool backward = false;
    StageId from_stage;
    StageId to_stage;
    auto operator<=>(const Key&) const = default;
  };
  struct Link {
    std::unique_ptr<LinkEnd> end;  ///< null: between other ranks
    std::shared_ptr<model::DeviceStream> stream;
    WorkerDevice* device = nullptr;
    /// What is on its way: so nobody takes it for exclusive and writes to it.
    struct Sent {
      model::EventPtr gone;
      model::Tensors tensors;
    };
    std::deque<Sent> sent;
  };
  Key key_of(const Message& message) const;
  Link& link_of(const Message& message);

  World& world_;
  std::unique_ptr<schedule::WorkerTable> table_;
  std::map<Key, Link> links_;
};

/// Aborts the links when the run fails: a GPU that waits for a peer that is gone would wait for
/// ever, and its worker with it. Looks a few times a second.
class LinkWatch {
 public:
  LinkWatch(DeviceLinks& links, const Fabric& fabric);

 private:
  std::jthread thread_;
};

/// How a message that goes by a link looks to the fabric.
std::vector<TensorLayout> mask_layout(size_t tensors);

}  // namespace penstock::runtime
