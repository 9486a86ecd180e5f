#include "penstock/runtime/device/rank_devices.h"

#include <algorithm>
#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

at::Device RankDevices::of(WorkerId worker) const {
  return site == nullptr || site->device_of_worker.empty() ? at::Device(at::kCPU)
                                                           : site->device_of_worker[worker.index()];
}

bool RankDevices::is_one_gpu() const {
  if (site == nullptr || site->device_of_worker.empty() || site->num_ranks() > 1) return false;
  const at::Device first = site->device_of_worker.front();
  return first.is_cuda() &&
         std::all_of(site->device_of_worker.begin(), site->device_of_worker.end(),
                     [&](const at::Device& device) { return device == first; });
}

model::Tensors RankDevices::leave(const Message& message, WorkerId receiver, model::Tensors tensors,
                                  WorkerDevice& from) const {
  if (ready == nullptr) return tensors;
  if (!holds(receiver)) {
    if (links == nullptr) return from.to_host(std::move(tensors));
    return {links->send(message, std::move(tensors), layout(message))};
  }
  Parcel parcel = from.give(std::move(tensors), of(receiver).is_cpu());
  ready->put(message, {std::move(parcel.ready), parcel.from});
  return std::move(parcel.tensors);
}

model::Tensors RankDevices::arrive(const Message& message, model::Tensors tensors,
                                   WorkerDevice& to) const {
  if (links != nullptr && links->carries(message)) {
    PENSTOCK_CHECK(tensors.size() == 1, tensors.size());
    return links->receive(message, tensors.front(), layout(message));
  }
  if (ready == nullptr) return tensors;
  ReadyBoard::Note note = ready->take(message);
  if (note.from.is_cpu() && !note.ready && !to.is_host()) return to.to_device(std::move(tensors));
  return to.take({std::move(tensors), std::move(note.ready), note.from},
                 /*exclusive=*/message.backward);
}

}  // namespace penstock::runtime
