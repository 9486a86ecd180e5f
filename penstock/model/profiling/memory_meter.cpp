#include "penstock/model/profiling/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

#include "penstock/model/torch_compat.h"

namespace penstock::model::detail {
namespace {

class Reporter final : public c10::MemoryReportingInfoBase {
 public:
  /// `alloc_size` is negative when memory is freed. Memory from before the meter is not reported
  /// when freed.
  void reportMemoryUsage(void*, int64_t alloc_size, TotalBytes, TotalBytes, c10::Device) override {
    bytes_ += alloc_size;
    peak_ = std::max(peak_, bytes_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t bytes() const { return bytes_; }
  int64_t peak_bytes() const { return peak_; }

 private:
  int64_t bytes_ = 0;
  int64_t peak_ = 0;
};

}  // namespace

struct MemoryMeter::State {
  std::shared_ptr<Reporter> reporter = std::make_shared<Reporter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, reporter};
};

MemoryMeter::MemoryMeter() : state_(std::make_unique<State>()) {}
MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::bytes() const { return state_->reporter->bytes(); }
int64_t MemoryMeter::peak_bytes() const { return state_->reporter->peak_bytes(); }

}  // namespace penstock::model::detail
