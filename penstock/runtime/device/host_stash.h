// What a forward pass keeps for its backward pass, moved to the memory of the host and back
// (actions OFFLOAD and LOAD). The tensors that autograd has saved stay what they are; only the
// memory below them goes and comes again, as in FSDP (Zhao et al., VLDB 2023). Internal to runtime.
//
//   StashWatch watch;
//   ... the forward pass ...
//   HostStash stash(device, watch.made(), not_these);   // OFFLOAD: the copies begin
//   stash.drop();                                       // when they have arrived
//   stash.load();                                       // LOAD: the copies back begin
//   stash.wait();                                       // the backward pass's work waits for them
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/runtime/device/worker_device.h"

namespace penstock::runtime {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// Notes the memory that the operations of this thread take while it lives. Not what they only
/// pass on: a view of a weight, say.
class StashWatch {
 public:
  StashWatch();
  ~StashWatch();
  StashWatch(const StashWatch&) = delete;
  StashWatch& operator=(const StashWatch&) = delete;

  std::vector<WeakStorage> made() { return std::move(made_); }

 private:
  friend struct StashWatchAccess;
  void note(const at::Tensor& tensor);

  StashWatch* outer_;
  at::CallbackHandle handle_;
  std::vector<WeakStorage> made_;
};

/// While it lives, the thread's watch notes nothing.
class StashPause {
 public:
  StashPause();
  ~StashPause();
  StashPause(const StashPause&) = delete;
  StashPause& operator=(const StashPause&) = delete;

 private:
  StashWatch* paused_;
};

std::vector<WeakStorage> storages_of(model::TensorSpan tensors);

/// The memory of tensors by its address, to leave it where it is.
using StorageSet = std::unordered_set<const c10::StorageImpl*>;
void add_storages(StorageSet& set, model::TensorSpan tensors);

/// Not thread-safe: its worker's thread owns it.
class HostStash {
 public:
  /// Starts to copy what still exists of `made`, is on the device and not in `stays`. Does nothing
  /// on the host.
  HostStash(WorkerDevice& device, const std::vector<WeakStorage>& made, const StorageSet& stays);

  /// Gives back the device's memory; blocks until the copies have arrived. Nothing may be computed
  /// with the tensors until wait().
  void drop();
  /// Starts to bring everything back; drop() first, if it has not been called.
  void load();
  /// Later work of the device waits for it; after load().
  void wait();

  int64_t bytes() const { return bytes_; }

 private:
  struct Part {
    c10::Storage storage;  ///< that the saved tensors use
    at::Tensor host;       ///< its bytes
  };

  WorkerDevice* device_;
  std::vector<Part> parts_;
  model::EventPtr moved_;  ///< of the copies that were started last
  bool dropped_ = false;
  int64_t bytes_ = 0;
};

}  // namespace penstock::runtime
