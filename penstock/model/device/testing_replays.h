// Emulated GPUs with graphs, for tests: their work is done at once in the host's memory, and a
// graph makes its call again and copies what that makes to where the first one has put it. Whoever
// still reads a tensor of a graph after its next launch finds other numbers.
#pragma once

#include <atomic>
#include <memory>

#include "penstock/model/device/testing_emulated.h"

namespace penstock::model {

class ReplayingDevices final : public EmulatedDevices {
 public:
  /// Recording fails from the `first_refused`-th time on.
  explicit ReplayingDevices(int count, int first_refused = 1'000'000)
      : EmulatedDevices(count), first_refused_(first_refused) {}

  std::shared_ptr<DeviceStream> stream(at::Device device) override;

  int recorded() const { return recorded_; }
  int64_t launches() const { return launches_; }

 private:
  friend class ReplayingStream;
  friend class ReplayedGraph;

  int first_refused_;
  std::atomic<int> attempts_{0};
  std::atomic<int> recorded_{0};
  std::atomic<int64_t> launches_{0};
};

}  // namespace penstock::model
