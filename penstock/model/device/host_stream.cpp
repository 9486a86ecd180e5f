#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "penstock/model/device/device_stream.h"
#include "penstock/util/check.h"

namespace penstock::model {

namespace {

class HostStream final : public DeviceStream {
 public:
  at::Device device() const override { return at::kCPU; }
  std::unique_ptr<StreamScope> enter() override { return std::make_unique<StreamScope>(); }
  EventPtr record(bool) override { return nullptr; }
  void wait(const EventPtr& event) override {
    if (event) event->wait_on_host();
  }
  void uses(const at::Tensor&) override {}
  at::Tensor allocate_like(const at::Tensor& tensor, bool) override {
    return at::empty_like(tensor, tensor.options().device(at::kCPU));
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    const at::NoGradGuard no_grad;
    to.copy_(from);
  }
  void synchronize() override {}
};

}  // namespace

std::unique_ptr<DeviceGraph> DeviceStream::capture(const std::shared_ptr<GraphMemory>&,
                                                   const Recordable&, std::vector<at::Tensor>&) {
  PENSTOCK_CHECK(false, "a device without graphs");
}

std::shared_ptr<DeviceStream> host_stream() {
  static const auto stream = std::make_shared<HostStream>();
  return stream;
}

}  // namespace penstock::model
