#include "penstock/model/device/testing_replays.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <utility>

#include "penstock/model/device/copies.h"

namespace penstock::model {

namespace {

class PastEvent final : public DeviceEvent {
 public:
  bool is_done() const override { return true; }
  void wait_on_host() const override {}
  int64_t ns_since(const DeviceEvent& earlier) const override {
    const auto& other = dynamic_cast<const PastEvent&>(earlier);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at_ - other.at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

}  // namespace

class ReplayedGraph final : public DeviceGraph {
 public:
  ReplayedGraph(ReplayingDevices& devices, DeviceStream::Recordable call, Tensors made)
      : devices_(devices), call_(std::move(call)), made_(std::move(made)) {}

  void launch() override {
    ++devices_.launches_;
    // Recording has done the work of the first launch.
    if (std::exchange(is_first_, false)) return;
    copy_all(made_, call_());
  }

 private:
  ReplayingDevices& devices_;
  DeviceStream::Recordable call_;
  Tensors made_;
  bool is_first_ = true;
};

class ReplayingStream final : public DeviceStream {
 public:
  ReplayingStream(ReplayingDevices& devices, at::Device device)
      : devices_(devices), device_(device) {}

  at::Device device() const override { return device_; }
  at::Device memory() const override { return at::kCPU; }
  std::unique_ptr<StreamScope> enter() override { return std::make_unique<StreamScope>(); }
  EventPtr record(bool) override { return std::make_shared<PastEvent>(); }
  void wait(const EventPtr&) override {}
  void uses(const at::Tensor&) override {}
  at::Tensor allocate_like(const at::Tensor& tensor, bool) override {
    return at::empty_like(tensor);
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    const at::NoGradGuard no_grad;
    to.copy_(from);
  }
  void synchronize() override {}

  std::shared_ptr<GraphMemory> graph_memory() override { return std::make_shared<GraphMemory>(); }
  std::unique_ptr<DeviceGraph> capture(const std::shared_ptr<GraphMemory>&, const Recordable& call,
                                       Tensors& made) override {
    // On a GPU nothing has happened, either, when it turns out that the work cannot be recorded.
    TORCH_CHECK(devices_.attempts_++ < devices_.first_refused_, "not permitted while recording");
    made = call();
    ++devices_.recorded_;
    return std::make_unique<ReplayedGraph>(devices_, call, made);
  }

 private:
  ReplayingDevices& devices_;
  at::Device device_;
};

std::shared_ptr<DeviceStream> ReplayingDevices::stream(at::Device device) {
  if (device.is_cpu()) return host_stream();
  return std::make_shared<ReplayingStream>(*this, device);
}

}  // namespace penstock::model
