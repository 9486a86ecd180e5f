// The seam to devices: a stream is a queue of work on one device, in order; events are points in
// such queues. All ordering between the workers of a process goes through these two, so that a
// device which only emulates them (testing_devices.h) shows whether a wait is missing.
//
//   const std::shared_ptr<DeviceStream> here = devices.stream(device);
//   const auto scope = here->enter();       // what this thread computes goes to the stream
//   const EventPtr ready = here->record();  // ...
//   other->wait(ready);                     // later work there waits; the host does not
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace penstock::model {

/// A point in the work of a stream. Thread-safe.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Whether the work before it is done. Never blocks.
  virtual bool is_done() const = 0;
  /// Blocks the calling thread until it is.
  virtual void wait_on_host() const = 0;
  /// From an earlier event of the same device; both were recorded with times and are done.
  virtual int64_t ns_since(const DeviceEvent& earlier) const = 0;
};

/// Null: the work was done when it was recorded, as that of the host is.
using EventPtr = std::shared_ptr<const DeviceEvent>;

/// What enter() returns: until it ends, the thread's work goes to the stream.
class StreamScope {
 public:
  virtual ~StreamScope() = default;
};

/// Memory of graphs that are launched in turn, always in the order in which they were recorded. It
/// stays reserved while one of them lives.
class GraphMemory {
 public:
  virtual ~GraphMemory() = default;
};

/// Work of a stream that was recorded (a CUDA graph): all of it is given to the stream in one call,
/// again and again, on the same tensors.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Gives the work to the stream that has recorded it.
  virtual void launch() = 0;
};

/// One thread gives it work at a time; events of other threads may be waited for.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  DeviceStream() = default;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  virtual at::Device device() const = 0;
  /// Where its tensors are: its device, unless that is emulated.
  virtual at::Device memory() const { return device(); }
  bool is_host() const { return device().is_cpu(); }

  virtual std::unique_ptr<StreamScope> enter() = 0;
  /// A point behind all work given so far. `timed`: ns_since() will be asked. A timed one that is
  /// recorded during capture() is a point in the graph, passed anew by each launch.
  virtual EventPtr record(bool timed = false) = 0;
  /// Work given from now on waits for the event. Only the host's stream blocks.
  virtual void wait(const EventPtr& event) = 0;
  /// The stream uses a tensor that was made on another one: its memory is not given to others
  /// before the work given so far is done.
  virtual void uses(const at::Tensor& tensor) = 0;
  /// Memory of this stream's device, with the sizes, strides and type of a tensor; for the host
  /// such that GPUs can copy it without blocking (pinned) where `for_transfer`.
  virtual at::Tensor allocate_like(const at::Tensor& tensor, bool for_transfer = false) = 0;
  /// Of the host's stream: whether the tensor is in such memory already.
  virtual bool is_for_transfer(const at::Tensor&) const { return false; }
  /// Queues to.copy_(from). One of both is on this device; either may be pinned host memory, and
  /// `from` may be on another device. Both are kept until it is done.
  virtual void copy(const at::Tensor& to, const at::Tensor& from) = 0;
  /// The same, where the owner of `to` sees to it that its memory is not given to others before:
  /// only `from` is kept.
  virtual void copy_into(const at::Tensor& to, const at::Tensor& from) { copy(to, from); }
  /// Blocks until all work given so far is done.
  virtual void synchronize() = 0;

  /// Null: the device has no graphs.
  virtual std::shared_ptr<GraphMemory> graph_memory() { return nullptr; }
  using Recordable = std::function<std::vector<at::Tensor>()>;
  /// Records the work of a call, of which only tensors that live outside it may be read or written
  /// before launch(). `made`: what the call returns, which each launch writes anew. The thread has
  /// entered the stream. Throws what the call throws, and c10::Error where its work cannot be
  /// recorded, as when it waits for the device; then nothing is left of it. Only where there is
  /// graph_memory().
  virtual std::unique_ptr<DeviceGraph> capture(const std::shared_ptr<GraphMemory>& memory,
                                               const Recordable& call,
                                               std::vector<at::Tensor>& made);
};

/// The CPU: what a thread computes is done when it returns. Waiting for an event blocks.
std::shared_ptr<DeviceStream> host_stream();

}  // namespace penstock::model
