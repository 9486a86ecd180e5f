#include "penstock/runtime/fabric/nccl/nccl_links.h"

#include <ATen/Functions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

namespace {

/// Ranks of a link's communicator.
constexpr int kSender = 0;
constexpr int kReceiver = 1;
/// NCCL takes this long at most to queue what both ends are ready for.
constexpr std::chrono::minutes kQueueing{1};
/// How often NCCL is asked whether it has done what it was told; before that a few times at once.
constexpr std::chrono::microseconds kPoll{100};
constexpr int kAtOnce = 100;
constexpr size_t kMostDevices = 128;

/// Operations on several communicators of a device must not be given by several threads at the same
/// time (NCCL, "Thread Safety").
Mutex& turn_of(const c10::Device& device) {
  static std::array<Mutex, kMostDevices> turns;
  return turns.at(static_cast<size_t>(device.index()));
}

[[noreturn]] void refuse(const char* doing, ncclResult_t result, ncclComm_t comm) {
  const char* const detail = ncclGetLastError(comm);
  throw TransportError(fmt::format("NCCL cannot {}: {}{}{}", doing, ncclGetErrorString(result),
                                   detail != nullptr && *detail != '\0' ? ": " : "",
                                   detail == nullptr ? "" : detail));
}

class Pause {
 public:
  void operator()() {
    if (++count_ <= kAtOnce)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPoll);
  }

 private:
  int count_ = 0;
};

constexpr int kMostBlocks = 4;  ///< of a GPU's threads, which each transfer of a link occupies

/// A communicator that does not block: what it is told may still be in progress, and another rank
/// that does not come must not hold this thread for ever.
class NcclEnd final : public LinkEnd {
 public:
  NcclEnd(const NcclSetup& setup, std::string name, const LinkPlace& place)
      : setup_(setup),
        name_(std::move(name)),
        sends_(place.from == setup.rank),
        sender_(place.from),
        device_(place.stream->device()) {
    PENSTOCK_CHECK(static_cast<size_t>(device_.index()) < kMostDevices, device_.index());
  }
  ~NcclEnd() override {
    if (listens_) setup_.listen(name_, {});
    give_up();
  }

  /// Blocks until the two GPUs are connected. NCCL does that with their first transfer, which waits
  /// for the peer: done here, where all ranks make the links in the same order, instead of in the
  /// middle of a schedule.
  void connect(const ncclUniqueId& id, const LinkPlace& place, Wait& wait) {
    const c10::cuda::CUDAGuard guard(device_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // A worker has two communicators for each other replica of its stage, and all may run at once:
    // together they must leave processors of the GPU to each other and to the computation.
    config.maxCTAs = kMostBlocks;
    const ncclResult_t result =
        ncclCommInitRankConfig(&comm_, 2, id, sends_ ? kSender : kReceiver, &config);
    constexpr const char* kDoing = "connect two GPUs";
    settle(kDoing, result, wait.deadline);
    const auto scope = place.stream->enter();
    const at::Tensor byte = at::zeros({1}, at::TensorOptions(at::kByte).device(device_));
    transfer(kDoing, {byte}, wait.deadline);
    const model::EventPtr done = place.stream->record();
    for (Pause pause; !done->is_done(); pause()) look(kDoing, wait.deadline);
    if (!sends_) return;
    setup_.listen(name_, place.on_receive);
    listens_ = true;
  }

  void send(const model::Tensors& tensors) override {
    transfer("send", tensors, std::chrono::steady_clock::now() + kQueueing);
  }
  void receive(const model::Tensors& places) override {
    // First, so that the sender can come while this end is being queued.
    setup_.call(sender_, name_);
    transfer("receive", places, std::chrono::steady_clock::now() + kQueueing);
  }

  void check() override {
    // Whoever has the turn looks himself.
    if (closing_ || !using_.try_lock()) return;
    const std::lock_guard lock(using_, std::adopt_lock);
    if (comm_ == nullptr) return;
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
    if (result == ncclSuccess) result = state;
    if (result != ncclSuccess && result != ncclInProgress) refuse("go on", result, comm_);
  }

  void give_up() noexcept override {
    closing_ = true;
    const std::lock_guard lock(using_);
    if (comm_ == nullptr) return;
    try {
      const c10::cuda::CUDAGuard guard(device_);
      ncclCommAbort(std::exchange(comm_, nullptr));
    } catch (const std::exception&) {  // the device has failed, and says so elsewhere
      comm_ = nullptr;
    }
  }

 private:
  void transfer(const char* doing, const model::Tensors& tensors, CondVar::Deadline deadline) {
    const std::lock_guard own(using_);
    if (closing_ || comm_ == nullptr)
      throw TransportError("a link between two GPUs has been closed");
    const c10::cuda::CUDAGuard guard(device_);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.index()).stream();
    MutexLock turn(turn_of(device_));
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) refuse(doing, result, comm_);
    for (const at::Tensor& tensor : tensors) {
      result =
          sends_ ? ncclSend(tensor.data_ptr(), tensor.nbytes(), ncclUint8, kReceiver, comm_, stream)
                 : ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclUint8, kSender, comm_, stream);
      if (result != ncclSuccess && result != ncclInProgress) break;
    }
    const ncclResult_t end = ncclGroupEnd();
    if (result != ncclSuccess && result != ncclInProgress) refuse(doing, result, comm_);
    settle(doing, end, deadline);
  }

  /// Polls until what was told is done or queued.
  void settle(const char* doing, ncclResult_t result, CondVar::Deadline deadline) {
    for (Pause pause; result == ncclInProgress; pause()) {
      look(doing, deadline);
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
      result = asked == ncclSuccess ? state : asked;
    }
    if (result != ncclSuccess) refuse(doing, result, comm_);
  }

  /// Whether it makes sense to go on waiting. Nothing is given up here, which might block.
  void look(const char* doing, CondVar::Deadline deadline) {
    if (closing_) throw TransportError("a link between two GPUs has been closed");
    setup_.check();
    if (CondVar::Deadline::clock::now() >= deadline) {
      throw TransportError(
          fmt::format("NCCL cannot {}: it has not done so in the time that it was given", doing));
    }
  }

  NcclSetup setup_;
  std::string name_;
  bool sends_;
  int sender_;
  c10::Device device_;
  bool listens_ = false;
  std::atomic<bool> closing_ = false;
  std::mutex using_;  ///< of comm_, by the thread that gives it work, check() and give_up()
  ncclComm_t comm_ = nullptr;
};

}  // namespace

bool has_nccl() { return true; }

LinkMaker make_nccl_links(NcclSetup setup) {
  return [setup = std::move(setup)](const std::string& name, const LinkPlace& place,
                                    Wait& wait) -> std::unique_ptr<LinkEnd> {
    const bool sends = place.from == setup.rank;
    if (!sends && place.to != setup.rank) return nullptr;
    ncclUniqueId id{};
    if (sends) {
      const ncclResult_t result = ncclGetUniqueId(&id);
      if (result != ncclSuccess) refuse("begin", result, nullptr);
      setup.put(name, std::string(id.internal, sizeof id.internal));
    } else {
      const std::string text = setup.get(name, wait);
      if (text.size() != sizeof id.internal) {
        throw TransportError(
            "the ranks have different versions of NCCL: its identifiers differ in length");
      }
      std::memcpy(id.internal, text.data(), text.size());
    }
    auto end = std::make_unique<NcclEnd>(setup, name, place);
    end->connect(id, place, wait);
    return end;
  };
}

}  // namespace penstock::runtime
