#include "penstock/model/device/testing_devices.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace penstock::model {

namespace {

class PromisedEvent final : public DeviceEvent {
 public:
  bool is_done() const override {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }
  void wait_on_host() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_; });
  }
  int64_t ns_since(const DeviceEvent& earlier) const override {
    const auto& other = dynamic_cast<const PromisedEvent&>(earlier);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at_ - other.at_).count();
  }
  void happen() {
    const std::lock_guard lock(mutex_);
    at_ = std::chrono::steady_clock::now();
    is_done_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_done_ = false;
  std::chrono::steady_clock::time_point at_;
};

}  // namespace

DelayedStream::DelayedStream(at::Device device, std::chrono::microseconds delay)
    : device_(device), delay_(delay), thread_([this] {
        std::unique_lock lock(mutex_);
        for (;;) {
          changed_.wait(lock, [&] { return ends_ || !work_.empty(); });
          if (work_.empty()) return;
          const std::function<void()> next = std::move(work_.front());
          work_.pop_front();
          lock.unlock();
          next();
          lock.lock();
        }
      }) {}

DelayedStream::~DelayedStream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void DelayedStream::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

EventPtr DelayedStream::record(bool) {
  auto event = std::make_shared<PromisedEvent>();
  post([event] { event->happen(); });
  return event;
}

void DelayedStream::wait(const EventPtr& event) {
  if (event) post([event] { event->wait_on_host(); });
}

void DelayedStream::uses(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  used_.push_back(tensor);
}

std::vector<at::Tensor> DelayedStream::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

at::Tensor DelayedStream::allocate_like(const at::Tensor& tensor, bool) {
  return at::full_like(tensor, -1);  // what nobody has written
}

void DelayedStream::copy(const at::Tensor& to, const at::Tensor& from) {
  post([this, to, from] {
    std::this_thread::sleep_for(delay_);
    const at::NoGradGuard no_grad;
    to.copy_(from);
  });
}

std::shared_ptr<DeviceStream> DelayedDevices::stream(at::Device device) {
  if (device.is_cpu()) return host_stream();
  return std::make_shared<DelayedStream>(device, delay_);
}

}  // namespace penstock::model
