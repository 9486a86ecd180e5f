#include "penstock/model/device/tensor_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "penstock/model/device/memory_ledger.h"
#include "penstock/model/torch_compat.h"

namespace penstock::model {

namespace {

using detail::MemoryLedger;

constexpr uint8_t kBeforeOthers = 200;
/// In front of each tensor, whose alignment stays.
constexpr size_t kHead = 64;
static_assert(sizeof(MemoryLedger::Block) <= kHead);

/// Null: nothing is counted.
std::atomic<MemoryLedger*>& ledger() {
  static std::atomic<MemoryLedger*> ledger{nullptr};
  return ledger;
}

/// As libtorch's own allocator, counted. Profilers see the tensors' own bytes.
class CountedMemory final : public AllocatorBase {
 public:
  CountedMemory() { ledger().store(&counts_); }

  c10::DataPtr take(size_t bytes) const override {
    if (bytes == 0) return {nullptr, nullptr, &give_back, c10::Device(c10::DeviceType::CPU)};
    void* const memory = c10::alloc_cpu(bytes + kHead);
    counts_.add(*std::construct_at(static_cast<MemoryLedger::Block*>(memory),
                                   static_cast<int64_t>(malloc_usable_size(memory))));
    void* const data = static_cast<std::byte*>(memory) + kHead;
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  /// Null: the tensor's memory came from elsewhere.
  static MemoryLedger::Block* block_of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return nullptr;
    const c10::DataPtr& data = tensor.storage().data_ptr();
    return data.get() != nullptr && data.get_deleter() == &give_back ? block_before(data.get())
                                                                     : nullptr;
  }

 private:
  static MemoryLedger::Block* block_before(void* data) {
    return std::launder(
        reinterpret_cast<MemoryLedger::Block*>(static_cast<std::byte*>(data) - kHead));
  }
  static void give_back(void* data) {
    if (data == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(data);
    MemoryLedger::Block* const block = block_before(data);
    ledger().load(std::memory_order_relaxed)->remove(*block);
    c10::free_cpu(block);
  }

  mutable MemoryLedger counts_;
};

uint16_t owner_of(WorkerId worker) {
  const size_t owner = worker.index() + 1;
  return owner < detail::kMemoryOwners ? static_cast<uint16_t>(owner) : uint16_t{0};
}

}  // namespace

void count_tensor_memory() {
  static CountedMemory* const memory = new CountedMemory;  // tidy: allow(memory) outlives tensors
  c10::SetCPUAllocator(memory, kBeforeOthers);
}

TensorMemory tensor_memory() {
  const MemoryLedger* const counts = ledger().load();
  return counts == nullptr ? TensorMemory{} : TensorMemory{counts->now(), counts->peak_bytes()};
}

MemoryBytes tensor_memory_peak() {
  MemoryLedger* const counts = ledger().load();
  return counts == nullptr ? MemoryBytes{} : counts->peak();
}

MemoryBytes tensor_memory_peak(WorkerId worker) {
  MemoryLedger* const counts = ledger().load();
  const uint16_t owner = owner_of(worker);
  return counts == nullptr || owner == 0 ? MemoryBytes{} : counts->owner_peak(owner);
}

ProcessMemory process_memory_peak() {
  MemoryLedger* const counts = ledger().load();
  return counts == nullptr ? ProcessMemory{} : counts->process_peak();
}

void reset_tensor_memory_peak() {
  if (MemoryLedger* const counts = ledger().load()) counts->reset_peaks();
}

MemoryOwner::MemoryOwner(WorkerId worker) : before_(detail::memory_tag().owner) {
  detail::memory_tag().owner = owner_of(worker);
}

MemoryOwner::~MemoryOwner() { detail::memory_tag().owner = before_; }

MemoryScope::MemoryScope(MemoryKind kind)
    : kind_before_(detail::memory_tag().kind), pass_before_(detail::memory_tag().pass) {
  detail::memory_tag().kind = kind;
  detail::memory_tag().pass = 0;
}

MemoryScope::~MemoryScope() {
  detail::memory_tag().kind = kind_before_;
  detail::memory_tag().pass = pass_before_;
}

MemoryPass::MemoryPass(MemoryKind kept) : kind_before_(detail::memory_tag().kind) {
  MemoryLedger* const counts = ledger().load(std::memory_order_relaxed);
  detail::MemoryTag& tag = detail::memory_tag();
  if (counts == nullptr || tag.owner == 0) return;
  tag.kind = kept;
  tag.pass = pass_ = counts->begin_pass(tag.owner);
}

MemoryPass::~MemoryPass() {
  if (pass_ == 0) return;
  detail::MemoryTag& tag = detail::memory_tag();
  ledger().load(std::memory_order_relaxed)->end_pass(tag.owner, pass_, tag.kind);
  tag.kind = kind_before_;
  tag.pass = 0;
}

void set_memory_kind(const at::Tensor& tensor, MemoryKind kind) {
  MemoryLedger* const counts = ledger().load(std::memory_order_relaxed);
  if (counts == nullptr) return;
  MemoryLedger::Block* const block = CountedMemory::block_of(tensor);
  if (block != nullptr) counts->change(*block, detail::memory_tag().owner, kind);
}

}  // namespace penstock::model
