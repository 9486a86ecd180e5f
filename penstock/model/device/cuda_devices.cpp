// GPUs through libtorch's CUDA part: its streams, its caching allocators for the memory of GPUs and
// for pinned memory of the host, CUDA's events.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/device/devices.h"
#include "penstock/util/process/mutex.h"

namespace penstock::model {

namespace {

using c10::cuda::CUDAStream;

bool is_recording(const CUDAStream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream.stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(const CUDAStream& stream, bool timed) {
    const c10::cuda::CUDAGuard guard(stream.device_index());
    C10_CUDA_CHECK(cudaEventCreateWithFlags(
        &event_, timed ? cudaEventDefault : static_cast<unsigned>(cudaEventDisableTiming)));
    // Behind a recording it could not be asked for its time otherwise.
    const bool external = timed && is_recording(stream);
    C10_CUDA_CHECK(cudaEventRecordWithFlags(
        event_, stream.stream(),
        external ? static_cast<unsigned>(cudaEventRecordExternal) : cudaEventRecordDefault));
  }
  ~CudaEvent() override { C10_CUDA_IGNORE_ERROR(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool is_done() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();  // it is no error, and would be met by the next check
      return false;
    }
    C10_CUDA_CHECK(state);
    return true;
  }
  void wait_on_host() const override { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  int64_t ns_since(const DeviceEvent& earlier) const override {
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds,
                                        dynamic_cast<const CudaEvent&>(earlier).event_, event_));
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Backward passes run on the thread that asks for them, as on the CPU: one thread of libtorch per
/// GPU would serve all its workers in turn, and each call would wait until it has woken up.
class CudaScope final : public StreamScope {
 public:
  explicit CudaScope(const CUDAStream& stream)
      : guard_(stream.unwrap()), state_(c10::AutogradState::get_tls_state()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~CudaScope() override {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(
        state_.get_multithreading_enabled());
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  c10::cuda::CUDAStreamGuard guard_;
  c10::AutogradState state_;
};

/// Streams that nobody else uses: libtorch's own pool gives the same 32 again and again, and work
/// that waits for another rank must not hold up a stream that somebody else took for his own. They
/// are never destroyed: libtorch's allocators wait for the streams that used some memory when that
/// is freed, which may be long after the stream's owner has gone.
class StreamPool {
 public:
  CUDAStream take(c10::DeviceIndex device) {
    {
      MutexLock lock(mutex_);
      std::vector<CUDAStream>& free = free_[device];
      if (!free.empty()) {
        const CUDAStream stream = free.back();
        free.pop_back();
        return stream;
      }
    }
    const c10::cuda::CUDAGuard guard(device);
    cudaStream_t stream = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return c10::cuda::getStreamFromExternal(stream, device);
  }

  void give_back(const CUDAStream& stream) {
    MutexLock lock(mutex_);
    free_[stream.device_index()].push_back(stream);
  }

 private:
  Mutex mutex_;
  std::map<c10::DeviceIndex, std::vector<CUDAStream>> free_ GUARDED_BY(mutex_);
};

/// Lives as long as the process.
StreamPool& stream_pool() {
  static StreamPool& pool = *std::make_unique<StreamPool>().release();
  return pool;
}

using PoolId = decltype(at::cuda::graph_pool_handle());

/// One of the caching allocator's private pools.
class CudaGraphMemory final : public GraphMemory {
 public:
  const PoolId id = at::cuda::graph_pool_handle();
};

/// By device, held alone while something is recorded there, and shared by whoever tells the
/// allocator that a stream uses a tensor: meanwhile it takes all such streams for the recording's
/// own, which do nothing yet, and would give the memory to others too soon.
std::shared_mutex& recording_on(c10::DeviceIndex device) {
  static std::array<std::shared_mutex, C10_COMPILE_TIME_MAX_GPUS> mutexes;
  return mutexes.at(static_cast<size_t>(device));
}

void record_use(const at::Tensor& tensor, const CUDAStream& stream) {
  const std::shared_lock lock(recording_on(tensor.device().index()));
  tensor.record_stream(stream.unwrap());
}

/// What libtorch's allocator is told of a recording since 2.13; before, beginAllocateToPool() says
/// it.
namespace before_marks {
template <class Device>
void markCaptureBegin(Device) {}
template <class Device>
void markCaptureEnd(Device) {}
}  // namespace before_marks

void mark_begin(c10::DeviceIndex device) {
  using namespace before_marks;
  using namespace c10::cuda::CUDACachingAllocator;
  markCaptureBegin(device);
}

void mark_end(c10::DeviceIndex device) {
  using namespace before_marks;
  using namespace c10::cuda::CUDACachingAllocator;
  markCaptureEnd(device);
}

/// From its making until end() the stream's work is recorded. In thread-local mode: other workers
/// of this process go on meanwhile.
class CudaCapture {
 public:
  CudaCapture(const CUDAStream& stream, std::shared_ptr<GraphMemory> memory)
      : stream_(stream), memory_(std::move(memory)), lock_(recording_on(stream.device_index())) {
    // Meanwhile the allocator cannot give back what it keeps for reuse, and a recording needs
    // memory of its own.
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(
        stream_.device_index(), pool(),
        [own = stream_.stream()](cudaStream_t other) { return other == own; });
    const cudaError_t error =
        cudaStreamBeginCapture(stream_.stream(), cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
      mark_begin(stream_.device_index());
      return;
    }
    leave_pool();
    c10::cuda::CUDACachingAllocator::releasePool(stream_.device_index(), pool());
    C10_CUDA_CHECK(error);
  }
  ~CudaCapture() {
    if (ended_) return;
    cudaGraph_t graph = nullptr;
    if (is_recording_) {
      (void)cudaStreamEndCapture(stream_.stream(), &graph);
      mark_end(stream_.device_index());
    }
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    leave_pool();
    c10::cuda::CUDACachingAllocator::releasePool(stream_.device_index(), pool());
  }
  CudaCapture(const CudaCapture&) = delete;
  CudaCapture& operator=(const CudaCapture&) = delete;

  /// The caller releases the pool when the graph has gone.
  cudaGraphExec_t end() {
    cudaGraph_t graph = nullptr;
    is_recording_ = false;
    const cudaError_t ended = cudaStreamEndCapture(stream_.stream(), &graph);
    mark_end(stream_.device_index());
    C10_CUDA_CHECK(ended);
    cudaGraphExec_t made = nullptr;
    const cudaError_t error = cudaGraphInstantiateWithFlags(&made, graph, 0);
    (void)cudaGraphDestroy(graph);
    C10_CUDA_CHECK(error);
    leave_pool();
    ended_ = true;
    return made;
  }

 private:
  const PoolId& pool() const { return dynamic_cast<const CudaGraphMemory&>(*memory_).id; }
  void leave_pool() {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_.device_index(), pool());
  }

  CUDAStream stream_;
  std::shared_ptr<GraphMemory> memory_;
  std::unique_lock<std::shared_mutex> lock_;
  bool is_recording_ = true;
  bool ended_ = false;
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(const CUDAStream& stream, std::shared_ptr<GraphMemory> memory, cudaGraphExec_t graph)
      : stream_(stream), memory_(std::move(memory)), graph_(graph) {}
  ~CudaGraph() override {
    // It may still be running.
    C10_CUDA_IGNORE_ERROR(cudaStreamSynchronize(stream_.stream()));
    C10_CUDA_IGNORE_ERROR(cudaGraphExecDestroy(graph_));
    c10::cuda::CUDACachingAllocator::releasePool(stream_.device_index(),
                                                 dynamic_cast<const CudaGraphMemory&>(*memory_).id);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override { C10_CUDA_CHECK(cudaGraphLaunch(graph_, stream_.stream())); }

 private:
  CUDAStream stream_;
  std::shared_ptr<GraphMemory> memory_;
  cudaGraphExec_t graph_;
};

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(c10::DeviceIndex device) : stream_(stream_pool().take(device)) {}
  ~CudaStream() override { stream_pool().give_back(stream_); }

  at::Device device() const override { return stream_.device(); }
  std::unique_ptr<StreamScope> enter() override { return std::make_unique<CudaScope>(stream_); }
  EventPtr record(bool timed) override { return std::make_shared<CudaEvent>(stream_, timed); }

  void wait(const EventPtr& event) override {
    if (!event) return;
    const c10::cuda::CUDAGuard guard(stream_.device_index());
    C10_CUDA_CHECK(
        cudaStreamWaitEvent(stream_.stream(), dynamic_cast<const CudaEvent&>(*event).event(), 0));
  }

  void uses(const at::Tensor& tensor) override {
    if (tensor.defined() && tensor.is_cuda()) record_use(tensor, stream_);
  }

  at::Tensor allocate_like(const at::Tensor& tensor, bool) override {
    const c10::cuda::CUDAStreamGuard guard(stream_.unwrap());
    return at::empty_like(tensor, tensor.options().device(stream_.device()).pinned_memory(false));
  }

  void copy(const at::Tensor& to, const at::Tensor& from) override {
    copy_into(to, from);
    uses(to);
  }
  void copy_into(const at::Tensor& to, const at::Tensor& from) override {
    const at::NoGradGuard no_grad;
    const c10::cuda::CUDAStreamGuard guard(stream_.unwrap());
    to.copy_(from, /*non_blocking=*/true);
    // Between two GPUs libtorch queues the copy on the source's current stream, here its default
    // one, and lets this stream wait for it.
    if (from.is_cuda() && from.device() != stream_.device())
      record_use(from, c10::cuda::getCurrentCUDAStream(from.device().index()));
    uses(from);
  }

  void synchronize() override { stream_.synchronize(); }

  std::shared_ptr<GraphMemory> graph_memory() override {
    return std::make_shared<CudaGraphMemory>();
  }
  std::unique_ptr<DeviceGraph> capture(const std::shared_ptr<GraphMemory>& memory,
                                       const Recordable& call,
                                       std::vector<at::Tensor>& made) override {
    CudaCapture capture(stream_, memory);
    made = call();
    return std::make_unique<CudaGraph>(stream_, memory, capture.end());
  }

 private:
  CUDAStream stream_;
};

/// The host beside GPUs: what is to be transferred lies in pinned memory.
class PinningHostStream final : public DeviceStream {
 public:
  at::Device device() const override { return at::kCPU; }
  std::unique_ptr<StreamScope> enter() override { return std::make_unique<StreamScope>(); }
  EventPtr record(bool) override { return nullptr; }
  void wait(const EventPtr& event) override { host_stream()->wait(event); }
  void uses(const at::Tensor&) override {}
  at::Tensor allocate_like(const at::Tensor& tensor, bool for_transfer) override {
    return at::empty_like(tensor, tensor.options().device(at::kCPU).pinned_memory(for_transfer));
  }
  bool is_for_transfer(const at::Tensor& tensor) const override { return tensor.is_pinned(); }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    host_stream()->copy(to, from);
  }
  void synchronize() override {}
};

class CudaDevices final : public Devices {
 public:
  CudaDevices() {
    const cudaError_t error = c10::cuda::GetDeviceCount(&count_);
    if (error == cudaSuccess && count_ > 0) return;
    count_ = 0;
    (void)cudaGetLastError();
    obstacle_ = error == cudaSuccess || error == cudaErrorNoDevice
                    ? "this machine has no GPU that CUDA can use"
                    : fmt::format("CUDA cannot use a GPU here: {}", cudaGetErrorString(error));
  }

  int count() const override { return count_; }
  std::string obstacle() const override { return obstacle_; }

  std::string name(at::Device device) const override {
    if (device.is_cpu()) return "CPU";
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
    return properties.name;
  }

  std::shared_ptr<DeviceStream> stream(at::Device device) override {
    if (device.is_cpu()) {
      if (count_ == 0) return host_stream();
      return std::make_shared<PinningHostStream>();
    }
    require_device(*this, device);
    initialize();
    return std::make_shared<CudaStream>(device.index());
  }

  DeviceMemory memory(at::Device device) const override {
    if (device.is_cpu()) return {};
    initialize();
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    const c10::cuda::CUDAGuard guard(device.index());
    size_t free = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {.allocated = stats.allocated_bytes[0].current,
            .peak = stats.allocated_bytes[0].peak,
            .reserved = stats.reserved_bytes[0].current,
            .total = static_cast<int64_t>(total)};
  }

  void reset_peak(at::Device device) override {
    if (device.is_cpu()) return;
    initialize();
    c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
  }

  at::Generator generator(at::Device device, uint64_t seed) const override {
    // The CPU, or what tests emulate.
    if (!device.is_cuda()) return at::make_generator<at::CPUGeneratorImpl>(seed);
    at::Generator generator = at::make_generator<at::CUDAGeneratorImpl>(device.index());
    generator.set_current_seed(seed);
    return generator;
  }

 private:
  static void initialize() { at::globalContext().lazyInitDevice(at::kCUDA); }

  int count_ = 0;
  std::string obstacle_;
};

}  // namespace

Devices& installed_devices() {
  static CudaDevices devices;
  return devices;
}

}  // namespace penstock::model
