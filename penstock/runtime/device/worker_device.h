// A worker's device: its stream of work, and the streams beside it on which tensors arrive and
// leave, so that copies and computation overlap. Between GPUs of a process tensors go by peer
// copies, between a GPU and the host through pinned memory; the host waits only for what it needs
// itself. On the CPU all of it is nothing. Internal to runtime.
//
//   WorkerDevice device(devices, at::Device("cuda:0"));
//   const auto scope = device.compute().enter();
//   Parcel parcel = device.give(std::move(outputs), /*to_host=*/false);   // on one worker's thread
//   Tensors inputs = other.take(std::move(parcel));                       // on another's
#pragma once

#include <deque>
#include <memory>

#include "penstock/model/device/devices.h"
#include "penstock/model/layer.h"

namespace penstock::runtime {

/// Tensors on their way, and from when on they may be read.
struct Parcel {
  model::Tensors tensors;
  model::EventPtr ready;
  at::Device from = at::kCPU;  ///< the device whose memory they are in
};

/// Not thread-safe: its worker's thread owns it.
class WorkerDevice {
 public:
  /// Throws ConfigError when there is no such device.
  WorkerDevice(model::Devices& devices, at::Device device);

  at::Device device() const { return compute_->device(); }
  bool is_host() const { return compute_->is_host(); }
  model::Devices& devices() const { return *devices_; }
  /// What the worker computes on.
  model::DeviceStream& compute() const { return *compute_; }

  /// What the worker's thread computes from now on, in the host's memory, is work of the host.
  std::unique_ptr<model::StreamScope> enter_host() { return host_->enter(); }

  /// Tensors of this device for another worker of the process. `to_host`: its device is the CPU,
  /// so they leave for the host's memory now, behind the work given so far.
  Parcel give(model::Tensors tensors, bool to_host);
  /// What another worker gave, on this device; later work waits for it. `exclusive`: this worker
  /// may write to it. On the same device that is a copy: that the giver's thread has dropped a
  /// tensor does not mean that its stream has read it.
  model::Tensors take(Parcel parcel, bool exclusive = false);
  /// Copies what another worker's GPU has made into places of this one, behind its event `free`.
  /// Later work has to wait for what is returned before it uses or frees them. Nobody must write to
  /// the tensors before the copies are done.
  model::EventPtr take_into(const model::Tensors& places, const Parcel& parcel,
                            const model::EventPtr& free);
  /// Starts to copy tensors of the host, made for transfer, to the device, behind the work given so
  /// far. Only what waits for the event waits. Not on the host.
  Parcel bring(model::Tensors tensors);
  /// Tensors of the host, which must not change before the copies are done; later work waits for
  /// them. Does not block on work of the device.
  model::Tensors to_device(model::Tensors tensors);
  at::Tensor to_device(const at::Tensor& tensor);
  /// The same in the host's memory. Blocks until the work given so far is done.
  model::Tensors to_host(model::Tensors tensors);
  /// Memory of the host for a tensor of this device, from which copies to the device do not block.
  at::Tensor host_like(const at::Tensor& tensor) {
    return host_->allocate_like(tensor, /*for_transfer=*/true);
  }
  /// A tensor of the host in memory from which copies to the device do not block; itself where that
  /// means nothing.
  at::Tensor staged(const at::Tensor& tensor);
  /// Drops what was only kept for copies that are done by now.
  void drop_copied();

 private:
  /// Keeps tensors that are being copied until the event: so nobody on this process takes them for
  /// exclusive and writes to them (ordered_sum.h).
  void keep_until(model::EventPtr event, model::Tensors tensors);

  struct Copied {
    model::EventPtr event;
    model::Tensors tensors;
  };
  model::Devices* devices_;
  std::shared_ptr<model::DeviceStream> compute_;
  std::shared_ptr<model::DeviceStream> incoming_;
  std::shared_ptr<model::DeviceStream> outgoing_;
  std::shared_ptr<model::DeviceStream> host_;
  std::deque<Copied> copied_;
};

}  // namespace penstock::runtime
