#include "penstock/runtime/fabric/nccl/nccl_links.h"

#include <ATen/Functions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstring>
#include <thread>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

namespace {

/// Ranks of a link's communicator.
constexpr int kSender = 0;
constexpr int kReceiver = 1;
/// How often NCCL is asked whether it has done what it was told.
constexpr std::chrono::microseconds kPoll{200};

[[noreturn]] void refuse(const std::string& doing, ncclResult_t result, ncclComm_t comm) {
  const char* const detail = ncclGetLastError(comm);
  throw TransportError(fmt::format("NCCL cannot {}: {}{}{}", doing, ncclGetErrorString(result),
                                   detail != nullptr && *detail != '\0' ? ": " : "",
                                   detail == nullptr ? "" : detail));
}

/// A communicator that does not block: what it is told may still be in progress, and another rank
/// that does not come must not hold this thread for ever.
class NcclEnd final : public LinkEnd {
 public:
  NcclEnd(const ncclUniqueId& id, bool sends, const c10::Device& device, Wait& wait)
      : peer_(sends ? kReceiver : kSender) {
    const c10::cuda::CUDAGuard guard(device);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    MutexLock lock(mutex_);
    settle("connect two GPUs",
           ncclCommInitRankConfig(&comm_, 2, id, sends ? kSender : kReceiver, &config),
           wait.deadline);
  }
  ~NcclEnd() override { abort(); }

  void send(const model::Tensors& tensors) override {
    run("send", tensors, [this](const at::Tensor& tensor, cudaStream_t stream) {
      return ncclSend(tensor.data_ptr(), tensor.nbytes(), ncclUint8, peer_, comm_, stream);
    });
  }
  void receive(const model::Tensors& places) override {
    run("receive", places, [this](const at::Tensor& place, cudaStream_t stream) {
      return ncclRecv(place.data_ptr(), place.nbytes(), ncclUint8, peer_, comm_, stream);
    });
  }
  void abort() noexcept override {
    MutexLock lock(mutex_);
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
  }

 private:
  template <class Call>
  void run(const char* doing, const model::Tensors& tensors, Call call) NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(mutex_);
    if (comm_ == nullptr) throw TransportError("a link between two GPUs has been closed");
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) refuse(doing, result, comm_);
    for (const at::Tensor& tensor : tensors) {
      result = call(tensor, stream);
      if (result != ncclSuccess && result != ncclInProgress) break;
    }
    const ncclResult_t end = ncclGroupEnd();
    if (result != ncclSuccess && result != ncclInProgress) refuse(doing, result, comm_);
    // Both ends are connected (warm_up()), so the peer is not needed for it.
    settle(doing, end, wait_for(std::chrono::minutes(1)).deadline);
  }

  /// Polls until what was told is done or queued.
  void settle(const char* doing, ncclResult_t result, CondVar::Deadline deadline) REQUIRES(mutex_) {
    while (result == ncclInProgress) {
      if (CondVar::Deadline::clock::now() >= deadline) {
        ncclCommAbort(std::exchange(comm_, nullptr));
        throw TimeoutError(
            fmt::format("NCCL cannot {}: the other rank did not answer in time", doing));
      }
      std::this_thread::sleep_for(kPoll);
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
      result = asked == ncclSuccess ? state : asked;
    }
    if (result != ncclSuccess) refuse(doing, result, comm_);
  }

  int peer_;
  Mutex mutex_;
  ncclComm_t comm_ GUARDED_BY(mutex_) = nullptr;
};

/// NCCL connects two GPUs with their first transfer, which waits for the peer: done here, where all
/// ranks make the links in the same order, instead of in the middle of a schedule.
void warm_up(LinkEnd& end, bool sends, model::DeviceStream& stream, Wait& wait) {
  model::EventPtr done;
  at::Tensor byte;
  {
    const auto scope = stream.enter();
    byte = at::zeros({1}, at::TensorOptions(at::kByte).device(stream.device()));
    if (sends)
      end.send({byte});
    else
      end.receive({byte});
    done = stream.record();
  }
  while (!done->is_done()) {
    if (CondVar::Deadline::clock::now() >= wait.deadline) {
      end.abort();
      throw TimeoutError("NCCL cannot connect two GPUs: the first byte did not arrive in time");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

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
      if (text.size() != sizeof id.internal)
        throw TransportError(
            "a rank has another version of NCCL: its identifiers are longer or "
            "shorter than this one's");
      std::memcpy(id.internal, text.data(), text.size());
    }
    auto end = std::make_unique<NcclEnd>(id, sends, place.stream->device(), wait);
    warm_up(*end, sends, *place.stream, wait);
    return end;
  };
}

}  // namespace penstock::runtime
