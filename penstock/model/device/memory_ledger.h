// Who holds how much memory for what, counted block by block as it is taken and given back. Each
// peak keeps what there was then, so that nothing is walked through while a program trains.
// Internal to tensor_memory.h; without libtorch.
//
//   MemoryLedger ledger;
//   MemoryLedger::Block block(4096);
//   ledger.add(block);                                // as this thread's scopes say
//   ledger.remove(block);
//   ledger.peak()[MemoryKind::Other];                 // 4096
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "penstock/util/process/memory_kinds.h"
#include "penstock/util/process/mutex.h"

namespace penstock::model::detail {

/// Owner 0 is nobody; worker w is w + 1. Workers beyond the last one count as nobody.
inline constexpr size_t kMemoryOwners = 257;

/// What the calling thread takes memory for.
struct MemoryTag {
  uint16_t owner = 0;
  MemoryKind kind = MemoryKind::Other;
  /// The pass of the owner that runs in this thread: what it takes is working memory until the pass
  /// ends, and of `kind` if it is still there then. 0: none.
  uint32_t pass = 0;
};
MemoryTag& memory_tag();

/// Thread-safe. Numbers of other threads may be behind by what these do at the same moment. An
/// owner is one thread at a time.
class MemoryLedger {
 public:
  /// Several threads may change one at the same time.
  class Block {
   public:
    explicit Block(int64_t bytes) : bytes_(bytes) {}

   private:
    friend class MemoryLedger;
    const int64_t bytes_;
    std::atomic<uint64_t> tag_{0};  ///< a MemoryTag, packed
  };

  /// Counts from here on what the heap takes more.
  MemoryLedger();

  void add(Block& block);
  void remove(const Block& block);
  void change(Block& block, uint16_t owner, MemoryKind kind);

  /// Numbers a pass of the owner, which lasts until end_pass(). Activations that are left count as
  /// such also in peaks during the pass.
  uint32_t begin_pass(uint16_t owner);
  void end_pass(uint16_t owner, uint32_t pass, MemoryKind kept);

  int64_t now() const { return total_.load(std::memory_order_relaxed); }
  int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }
  /// At the owner's own peak.
  MemoryBytes owner_peak(uint16_t owner);
  /// Of all owners, at the peak of their sum.
  MemoryBytes peak();
  /// When the process was largest, as far as it was looked at: near peaks of the ledger.
  ProcessMemory process_peak();
  void reset_peaks();

 private:
  /// What there was at a peak, and of it, what a pass of each owner had just taken.
  struct Peak {
    MemoryBytes bytes = {};
    std::array<uint32_t, kMemoryOwners> pass = {};
    std::array<int64_t, kMemoryOwners> working = {};
  };
  struct Owner {
    std::array<std::atomic<int64_t>, kNumMemoryKinds> now = {};
    std::atomic<int64_t> total{0};
    std::atomic<int64_t> peak{0};
    std::atomic<uint32_t> pass{0};  ///< that runs; 0: none
    std::atomic<uint32_t> peak_pass{0};
    uint32_t last_pass = 0;
    MemoryBytes at_peak = {};  ///< guarded by the ledger's mutex
  };

  MemoryKind kind_of(const MemoryTag& tag) const;
  void count(uint16_t owner, MemoryKind kind, int64_t bytes);
  /// Of a peak that this thread has found; nothing when another thread has found a higher one
  /// since.
  void note_owner_peak(Owner& owner, int64_t peak);
  void note_peak(int64_t peak);
  void copy_now(Peak& peak) REQUIRES(mutex_);
  void settle(Peak& peak, uint16_t owner, uint32_t pass, MemoryKind kept, int64_t left)
      REQUIRES(mutex_);
  bool is_sample_due();
  void sample();

  std::array<Owner, kMemoryOwners> owners_;
  std::atomic<uint16_t> used_{1};  ///< owners up to the last one that has taken memory
  std::atomic<int64_t> total_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> near_peak_{0};     ///< from here on the process is looked at
  std::atomic<int64_t> sample_above_{0};  ///< a peak that is at least so high is looked at at once
  std::atomic<bool> sample_due_{false};
  std::atomic<int64_t> sampled_at_ns_{0};

  const HeapState start_;
  Mutex mutex_;
  Peak at_peak_ GUARDED_BY(mutex_);
  Peak sampled_ GUARDED_BY(mutex_);
  ProcessMemory process_ GUARDED_BY(mutex_);
};

}  // namespace penstock::model::detail
