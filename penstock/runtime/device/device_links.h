// Messages between GPUs of different ranks that stay in the memory of GPUs. A message goes in two
// parts: its tensors by a link (fabric/device_link.h), and by the fabric, as any other message, a
// byte for each tensor that says whether it is defined. So the fabric knows of every message and
// notices a lost peer, and nobody queues a receive for what will not come.
//
//   links.open(schedule, devices, patience);                     // on all ranks
//   fabric.send(message, {links.send(message, tensors)}, wait);  // the sender's thread
//   fabric.receive(message, mask, wait);                         // the receiver's
//   Tensors tensors = links.receive(message, mask.front());
//
// Replicas of a stage hand each other tensors whose sizes both know (replica_exchange.h), without
// the fabric:
//
//   links.send_to(own, peer, stage, tensors);          // on one rank
//   links.receive_from(peer, own, stage, places);      // on the other
//
// There is a link for each two workers, pair of stages and direction. Tensors are matched by their
// order on it, which has to be that of the schedule at both ends. A thread of each rank sends what
// the other end has asked for. Internal to runtime.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/fabric/device_link.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Outlives the runs of its pipeline, as long as none fails: a link is made once. Thread-safe, as
/// long as calls for one worker come from one thread.
class DeviceLinks {
 public:
  explicit DeviceLinks(World& world) : world_(world) {}
  ~DeviceLinks();

  /// Makes the links that the schedule needs and that are not there yet, each within `patience`;
  /// also those between the replicas of the stages `exchange`. Collective. `devices`: by worker,
  /// null for those of other ranks; they must outlive this. Throws, on all ranks, ConfigError where
  /// a worker is on the CPU, or the receiver takes messages in another order than the sender sends
  /// them; TransportError and TimeoutError where a link cannot be made.
  void open(const schedule::Schedule& schedule,
            const std::vector<std::unique_ptr<WorkerDevice>>& devices,
            const std::vector<StageId>& exchange, std::chrono::milliseconds patience);

  /// Whether the message goes between two ranks, so by a link.
  bool carries(const Message& message) const;

  /// The tensors leave behind the work that the sender's device has been given. Returns which are
  /// defined: [n] bytes in the host's memory. They have to be of the layout.
  at::Tensor send(const Message& message, model::Tensors tensors,
                  const std::vector<TensorLayout>& layout);
  /// Queues the receive; later work of the receiver's device waits for it. Nobody else has the
  /// tensors.
  model::Tensors receive(const Message& message, const at::Tensor& defined,
                         const std::vector<TensorLayout>& layout);

  /// Between replicas of a stage on two ranks. The tensors leave behind the work that the sender's
  /// device has been given; they are contiguous, and must not be written to before they have left.
  void send_to(WorkerId own, WorkerId peer, StageId stage, const model::Tensors& tensors);
  /// Queues the receive of as many tensors, of the same sizes, into these places behind the event
  /// `free` of the receiver's device, which must wait for what is returned before it uses or frees
  /// them.
  model::EventPtr receive_from(WorkerId peer, WorkerId own, StageId stage,
                               const model::Tensors& places, const model::EventPtr& free);

  /// Throws what a link has met since.
  void check();
  /// Ends what is queued on all links, of which none can be used later.
  void give_up() noexcept;
  /// Lets go of tensors that have left.
  void drop_sent();

 private:
  struct Key {
    WorkerId from;
    WorkerId to;
    bool backward = false;
    StageId from_stage;
    StageId to_stage;
    auto operator<=>(const Key&) const = default;
  };
  /// Until `event` nobody must take the tensors for exclusive and write to them.
  struct Kept {
    model::EventPtr event;
    model::Tensors tensors;
  };
  struct Link {
    std::unique_ptr<LinkEnd> end;
    std::shared_ptr<model::DeviceStream> stream;  ///< null: a link between other ranks
    WorkerDevice* device = nullptr;
    // At the sender's end, guarded by mutex_:
    int64_t wanted = 0;        ///< receives that the other end has queued, less what was sent
    std::deque<Kept> waiting;  ///< with the events behind which they are made
    std::deque<Kept> sent;     ///< with those behind which they have left
  };
  Key key_of(const Message& message) const;
  Link& link_of(const Key& key);
  Link& link_of(const Message& message) { return link_of(key_of(message)); }
  /// Gives the tensors, of at least one byte each, to the thread that sends.
  void leave(Link& link, model::Tensors tensors);
  void check_devices(const std::vector<std::unique_ptr<WorkerDevice>>& devices, Wait& wait);
  /// Of the thread that sends.
  void send_what_is_wanted();
  Link* next_wanted() REQUIRES(mutex_);
  void drop_sent(Link& link) REQUIRES(mutex_);

  World& world_;
  bool checked_ = false;
  std::unique_ptr<schedule::WorkerTable> table_;
  std::map<Key, Link> links_;  ///< changes in open() only, while nobody sends
  Mutex mutex_;
  CondVar changed_;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::jthread sender_;  ///< while there are links
};

/// Fails the run when a link does, and gives the links up when the run fails: a GPU that waits for
/// a peer that is gone would wait for ever, and its worker with it. Looks a few times a second.
class LinkWatch {
 public:
  LinkWatch(DeviceLinks& links, RunControl& fabric);
  ~LinkWatch();

 private:
  DeviceLinks& links_;
  std::jthread thread_;
};

/// How a message that goes by a link looks to the fabric.
std::vector<TensorLayout> mask_layout(size_t tensors);

}  // namespace penstock::runtime
