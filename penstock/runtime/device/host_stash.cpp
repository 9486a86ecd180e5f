#include "penstock/runtime/device/host_stash.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>

#include <utility>

namespace penstock::runtime {

namespace {

thread_local StashWatch* current_watch = nullptr;

/// The memory that an operation reads.
struct Read : at::ObserverContext {
  StorageSet storages;
};

template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.has_storage()) visit(tensor);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined() && tensor.has_storage()) visit(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

WeakStorage weak_storage_of(const at::Tensor& tensor) {
  return WeakStorage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
}

/// The bytes of a storage as a tensor.
at::Tensor bytes_of(const c10::Storage& storage) {
  const auto key = c10::computeDispatchKey(at::kByte, at::kStrided, storage.device());
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(storage.nbytes())});
  return bytes;
}

}  // namespace

/// What the callbacks below may do.
struct StashWatchAccess {
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    auto read = std::make_unique<Read>();
    for (const c10::IValue& input : call.inputs()) {
      for_each_tensor(input,
                      [&](const at::Tensor& tensor) { read->storages.insert(storage_of(tensor)); });
    }
    return read;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext* context) {
    if (current_watch == nullptr || context == nullptr) return;
    const StorageSet& read = static_cast<const Read*>(context)->storages;
    for (const c10::IValue& output : call.outputs()) {
      for_each_tensor(output, [&](const at::Tensor& tensor) {
        if (!read.contains(storage_of(tensor))) current_watch->note(tensor);
      });
    }
  }
};

StashWatch::StashWatch() : outer_(std::exchange(current_watch, this)) {
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&StashWatchAccess::begin, &StashWatchAccess::end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

StashWatch::~StashWatch() {
  at::removeCallback(handle_);
  current_watch = outer_;
}

void StashWatch::note(const at::Tensor& tensor) { made_.push_back(weak_storage_of(tensor)); }

StashPause::StashPause() : paused_(std::exchange(current_watch, nullptr)) {}

StashPause::~StashPause() { current_watch = paused_; }

std::vector<WeakStorage> storages_of(model::TensorSpan tensors) {
  std::vector<WeakStorage> storages;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.has_storage()) storages.push_back(weak_storage_of(tensor));
  }
  return storages;
}

void add_storages(StorageSet& set, model::TensorSpan tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.has_storage()) set.insert(storage_of(tensor));
  }
}

HostStash::HostStash(WorkerDevice& device, const std::vector<WeakStorage>& made,
                     const StorageSet& stays)
    : device_(&device) {
  if (device.is_host()) return;
  const at::NoGradGuard no_grad;
  StorageSet seen = stays;
  model::Tensors bytes;
  for (const WeakStorage& weak : made) {
    auto storage = weak.lock();
    if (!storage || storage->nbytes() == 0 || storage->device() != device.compute().memory() ||
        !seen.insert(storage.get()).second)
      continue;
    bytes_ += static_cast<int64_t>(storage->nbytes());
    parts_.push_back({c10::Storage(std::move(storage)), {}});
    bytes.push_back(bytes_of(parts_.back().storage));
  }
  Parcel parcel = device.give(std::move(bytes), /*to_host=*/true);
  for (size_t i = 0; i < parts_.size(); ++i) parts_[i].host = std::move(parcel.tensors[i]);
  moved_ = std::move(parcel.ready);
}

void HostStash::drop() {
  if (dropped_) return;
  dropped_ = true;
  if (moved_) moved_->wait_on_host();
  moved_ = nullptr;
  device_->drop_copied();
  for (const Part& part : parts_) part.storage.set_data_ptr({nullptr, part.storage.device()});
}

void HostStash::load() {
  drop();
  if (parts_.empty()) return;
  const at::NoGradGuard no_grad;
  model::Tensors from;
  for (Part& part : parts_) from.push_back(std::move(part.host));
  Parcel parcel = device_->bring(std::move(from));
  moved_ = std::move(parcel.ready);
  for (size_t i = 0; i < parts_.size(); ++i) {
    c10::Storage memory = parcel.tensors[i].storage();
    parts_[i].storage.set_data_ptr(memory.set_data_ptr({nullptr, memory.device()}));
  }
}

void HostStash::wait() {
  device_->compute().wait(moved_);
  parts_.clear();
}

}  // namespace penstock::runtime
