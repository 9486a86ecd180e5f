// GPUs that are emulated for tests, with their tensors in the host's memory.
//
// DelayedDevices: each stream is a thread that does its work in order, each piece after a delay, so
// that whoever does not wait for an event reads what is not there yet.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "penstock/model/device/testing_emulated.h"

namespace penstock::model {

class DelayedStream final : public DeviceStream {
 public:
  DelayedStream(at::Device device, std::chrono::microseconds delay);
  ~DelayedStream() override;

  at::Device device() const override { return device_; }
  at::Device memory() const override { return at::kCPU; }
  std::unique_ptr<StreamScope> enter() override { return std::make_unique<StreamScope>(); }
  EventPtr record(bool timed) override;
  void wait(const EventPtr& event) override;
  void uses(const at::Tensor& tensor) override;
  at::Tensor allocate_like(const at::Tensor& tensor, bool for_transfer) override;
  void copy(const at::Tensor& to, const at::Tensor& from) override;
  void synchronize() override { record(false)->wait_on_host(); }

  /// Work of the test's own.
  void post(std::function<void()> work);
  /// Tensors that were named by uses().
  std::vector<at::Tensor> used() const;

 private:
  at::Device device_;
  std::chrono::microseconds delay_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::vector<at::Tensor> used_;
  bool ends_ = false;
  std::thread thread_;
};

class DelayedDevices final : public EmulatedDevices {
 public:
  DelayedDevices(int count, std::chrono::microseconds delay)
      : EmulatedDevices(count), delay_(delay) {}

  std::shared_ptr<DeviceStream> stream(at::Device device) override;

 private:
  std::chrono::microseconds delay_;
};

}  // namespace penstock::model
