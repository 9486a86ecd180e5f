// The devices of a rank's workers during one run, and what their tensors go through beside the
// fabric. Internal to runtime.
//
//   tensors = devices.leave(message, receiver, std::move(tensors), own);   // before send()
//   tensors = devices.arrive(message, std::move(tensors), own);            // behind receive()
#pragma once

#include <memory>
#include <vector>

#include "penstock/runtime/device/device_links.h"
#include "penstock/runtime/device/ready_board.h"
#include "penstock/runtime/device/replica_exchange.h"
#include "penstock/runtime/device/worker_device.h"
#include "penstock/runtime/fabric/site.h"

namespace penstock::runtime {

/// Thread-safe, as long as calls for one worker come from one thread.
struct RankDevices {
  const Site* site = nullptr;    ///< null: all workers are here, on the CPU
  ReadyBoard* ready = nullptr;   ///< null: no worker has a GPU
  DeviceLinks* links = nullptr;  ///< null: the host's memory is between ranks
  MessageLayout layout = {};     ///< what messages hold
  /// By stage, where its replicas add gradients in the memory of GPUs; otherwise null.
  std::vector<std::unique_ptr<ReplicaExchange>> exchanges = {};

  /// Whether this rank runs the worker.
  bool holds(WorkerId worker) const { return site == nullptr || site->holds(worker); }
  /// The device of a worker of this rank.
  at::Device of(WorkerId worker) const;
  /// Whether all workers of the run are here, on one GPU.
  bool is_one_gpu() const;

  /// The tensors of the device `from` as their receiver takes them.
  model::Tensors leave(const Message& message, WorkerId receiver, model::Tensors tensors,
                       WorkerDevice& from) const;
  /// What has been received, on the device `to`, whose later work waits for it.
  model::Tensors arrive(const Message& message, model::Tensors tensors, WorkerDevice& to) const;
};

}  // namespace penstock::runtime
