#include "penstock/model/device/memory_ledger.h"

#include <time.h>

#include <algorithm>

namespace penstock::model::detail {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
/// Near a peak the process is looked at so often; a look takes some microseconds.
constexpr int64_t kSampleEveryNs = 250'000'000;

/// To some milliseconds, without a system call.
int64_t coarse_ns() {
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// `value` if it is more than what is there; whether it was.
template <typename Number>
bool raise(std::atomic<Number>& highest, Number value) {
  Number before = highest.load(kRelaxed);
  while (value > before) {
    if (highest.compare_exchange_weak(before, value, kRelaxed)) return true;
  }
  return false;
}

/// From the lowest bit: the pass in 32 bits, the owner in 16, the kind in 8.
uint64_t packed(const MemoryTag& tag) {
  return uint64_t{tag.pass} | uint64_t{tag.owner} << 32 | static_cast<uint64_t>(tag.kind) << 48;
}

MemoryTag unpacked(uint64_t tag) {
  return {.owner = static_cast<uint16_t>(tag >> 32),
          .kind = static_cast<MemoryKind>(tag >> 48),
          .pass = static_cast<uint32_t>(tag)};
}

}  // namespace

MemoryTag& memory_tag() {
  thread_local MemoryTag tag;
  return tag;
}

MemoryLedger::MemoryLedger() : start_(heap_state()) {}

MemoryKind MemoryLedger::kind_of(const MemoryTag& tag) const {
  const bool is_new = tag.pass != 0 && owners_[tag.owner].pass.load(kRelaxed) == tag.pass;
  return is_new ? MemoryKind::Working : tag.kind;
}

void MemoryLedger::count(uint16_t owner, MemoryKind kind, int64_t bytes) {
  Owner& own = owners_[owner];
  own.now[static_cast<size_t>(kind)].fetch_add(bytes, kRelaxed);
  const int64_t held = own.total.fetch_add(bytes, kRelaxed) + bytes;
  if (bytes > 0 && owner > 0 && raise(own.peak, held)) note_owner_peak(own, held);
}

void MemoryLedger::add(Block& block) {
  const MemoryTag tag = memory_tag();
  block.tag_.store(packed(tag), kRelaxed);
  raise(used_, static_cast<uint16_t>(tag.owner + 1));
  count(tag.owner, kind_of(tag), block.bytes_);
  // Whoever finds the highest peak sees all that was counted for it.
  const int64_t held = total_.fetch_add(block.bytes_, std::memory_order_acq_rel) + block.bytes_;
  if (raise(peak_, held)) note_peak(held);
}

void MemoryLedger::remove(const Block& block) {
  // What was taken last has been written by now.
  if (is_sample_due()) sample();
  const MemoryTag tag = unpacked(block.tag_.load(kRelaxed));
  count(tag.owner, kind_of(tag), -block.bytes_);
  total_.fetch_sub(block.bytes_, kRelaxed);
}

void MemoryLedger::change(Block& block, uint16_t owner, MemoryKind kind) {
  raise(used_, static_cast<uint16_t>(owner + 1));
  // Each thread takes away what the one before it has put there, so that nothing counts twice.
  const MemoryTag before =
      unpacked(block.tag_.exchange(packed({.owner = owner, .kind = kind}), kRelaxed));
  count(before.owner, kind_of(before), -block.bytes_);
  count(owner, kind, block.bytes_);
}

uint32_t MemoryLedger::begin_pass(uint16_t owner) {
  Owner& own = owners_[owner];
  own.last_pass = std::max<uint32_t>(own.last_pass + 1, 1);
  own.pass.store(own.last_pass, kRelaxed);
  return own.last_pass;
}

void MemoryLedger::end_pass(uint16_t owner, uint32_t pass, MemoryKind kept) {
  Owner& own = owners_[owner];
  const auto working = static_cast<size_t>(MemoryKind::Working);
  MutexLock lock(mutex_);  // no peak is noted in between
  // First, so that what other threads free from here on is counted where it is about to be.
  own.pass.store(0, kRelaxed);
  const int64_t left = own.now[working].exchange(0, std::memory_order_acq_rel);
  own.now[static_cast<size_t>(kept)].fetch_add(left, kRelaxed);
  // A backward pass leaves gradients of different kinds, and working memory is what it is called
  // while it runs.
  if (owner == 0 || kept != MemoryKind::Activations) return;
  if (own.peak_pass.load(kRelaxed) == pass) {
    const int64_t moved = std::clamp<int64_t>(left, 0, own.at_peak[MemoryKind::Working]);
    own.at_peak[MemoryKind::Working] -= moved;
    own.at_peak[kept] += moved;
    own.peak_pass.store(0, kRelaxed);
  }
  settle(at_peak_, owner, pass, kept, left);
  settle(sampled_, owner, pass, kept, left);
  process_.tensors = sampled_.bytes;
}

void MemoryLedger::settle(Peak& peak, uint16_t owner, uint32_t pass, MemoryKind kept,
                          int64_t left) {
  if (peak.pass[owner] != pass) return;
  const int64_t moved = std::clamp<int64_t>(left, 0, std::max<int64_t>(peak.working[owner], 0));
  peak.bytes[MemoryKind::Working] -= moved;
  peak.bytes[kept] += moved;
  peak.pass[owner] = 0;
}

void MemoryLedger::note_owner_peak(Owner& owner, int64_t peak) {
  MutexLock lock(mutex_);
  if (owner.peak.load(kRelaxed) != peak) return;
  for (size_t k = 0; k < kNumMemoryKinds; ++k) owner.at_peak.of[k] = owner.now[k].load(kRelaxed);
  owner.peak_pass.store(owner.pass.load(kRelaxed), kRelaxed);
}

void MemoryLedger::copy_now(Peak& peak) {
  const auto working = static_cast<size_t>(MemoryKind::Working);
  peak.bytes = {};
  for (size_t o = 0; o < used_.load(kRelaxed); ++o) {
    for (size_t k = 0; k < kNumMemoryKinds; ++k)
      peak.bytes.of[k] += owners_[o].now[k].load(kRelaxed);
    peak.pass[o] = owners_[o].pass.load(kRelaxed);
    peak.working[o] = owners_[o].now[working].load(kRelaxed);
  }
}

void MemoryLedger::note_peak(int64_t peak) {
  MutexLock lock(mutex_);
  if (peak_.load(kRelaxed) != peak) return;
  copy_now(at_peak_);
  near_peak_.store(peak - peak / 32, kRelaxed);
  if (peak < sample_above_.load(kRelaxed)) return;
  sample_above_.store(peak + peak / 64, kRelaxed);
  sample_due_.store(true, kRelaxed);
}

bool MemoryLedger::is_sample_due() {
  if (sample_due_.load(kRelaxed)) return true;
  if (total_.load(kRelaxed) < near_peak_.load(kRelaxed)) return false;
  return coarse_ns() - sampled_at_ns_.load(kRelaxed) > kSampleEveryNs;
}

void MemoryLedger::sample() {
  sample_due_.store(false, kRelaxed);
  sampled_at_ns_.store(coarse_ns(), kRelaxed);
  const HeapState heap = heap_state();
  MutexLock lock(mutex_);
  if (heap.resident <= process_.resident) return;
  copy_now(sampled_);
  const int64_t tensors = sampled_.bytes.sum();
  const int64_t own_pages = start_.resident - start_.shared - start_.free;
  process_.tensors = sampled_.bytes;
  process_.libraries = heap.shared + std::max<int64_t>(own_pages, 0);
  process_.objects = std::max<int64_t>(heap.in_use - start_.in_use - tensors, 0);
  process_.resident = heap.resident;
  // Free memory that was never written has no pages.
  const int64_t room = heap.resident - process_.libraries - process_.objects - tensors;
  process_.slack = std::clamp<int64_t>(heap.free, 0, std::max<int64_t>(room, 0));
}

MemoryBytes MemoryLedger::owner_peak(uint16_t owner) {
  MutexLock lock(mutex_);
  return owners_[owner].at_peak;
}

MemoryBytes MemoryLedger::peak() {
  MutexLock lock(mutex_);
  return at_peak_.bytes;
}

ProcessMemory MemoryLedger::process_peak() {
  MutexLock lock(mutex_);
  return process_;
}

void MemoryLedger::reset_peaks() {
  MutexLock lock(mutex_);
  for (size_t o = 0; o < used_.load(kRelaxed); ++o) {
    Owner& owner = owners_[o];
    owner.peak.store(owner.total.load(kRelaxed), kRelaxed);
    for (size_t k = 0; k < kNumMemoryKinds; ++k) owner.at_peak.of[k] = owner.now[k].load(kRelaxed);
  }
  peak_.store(total_.load(kRelaxed), kRelaxed);
  copy_now(at_peak_);
  sampled_ = at_peak_;
  process_ = {};
  sample_above_.store(0, kRelaxed);
  near_peak_.store(0, kRelaxed);
  sample_due_.store(true, kRelaxed);
}

}  // namespace penstock::model::detail
