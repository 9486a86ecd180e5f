#include "penstock/runtime/device/replica_exchange.h"

#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

using model::Tensors;

ReplicaExchange::ReplicaExchange(StageId stage, std::vector<WorkerId> workers,
                                 std::vector<WorkerDevice*> devices, DeviceLinks* links, bool meets)
    : stage_(stage),
      workers_(std::move(workers)),
      devices_(std::move(devices)),
      links_(links),
      meets_(meets),
      posts_(workers_.size()),
      rounds_(workers_.size(), 0) {}

void ReplicaExchange::exchange(int replica, PerReplica leaving, const PerReplica& places,
                               const std::function<void()>& meet) {
  const auto own = static_cast<size_t>(replica);
  PENSTOCK_CHECK(leaving.size() == replicas() && places.size() == replicas(), leaving.size(),
                 places.size(), replicas());
  WorkerDevice& device = *devices_[own];
  // Each replica begins with the one behind it, so that all links are busy.
  const auto peer = [&](size_t i) { return (own + i) % replicas(); };
  for (size_t i = 1; i < replicas(); ++i) {
    const size_t q = peer(i);
    if (devices_[q] == nullptr) links_->send_to(workers_[own], workers_[q], stage_, leaving[q]);
  }
  size_t turn = 0;
  const model::EventPtr made = device.compute().record();
  if (meets_) {
    {
      MutexLock lock(mutex_);
      turn = rounds_[own]++ % 2;
      posts_[own][turn] = {std::move(leaving), made};
    }
    meet();
    Post read;  // by all
    MutexLock lock(mutex_);
    std::swap(read, posts_[own][1 - turn]);
  }
  std::vector<model::EventPtr> arrived;
  for (size_t i = 1; i < replicas(); ++i) {
    const size_t q = peer(i);
    if (devices_[q] == nullptr) {
      arrived.push_back(links_->receive_from(workers_[q], workers_[own], stage_, places[q], made));
      continue;
    }
    Parcel parcel;
    {
      MutexLock lock(mutex_);
      parcel.tensors = posts_[q][turn].leaving[own];
      parcel.ready = posts_[q][turn].made;
    }
    arrived.push_back(device.take_into(places[q], parcel, made));
  }
  for (const model::EventPtr& event : arrived) device.compute().wait(event);
}

}  // namespace penstock::runtime
