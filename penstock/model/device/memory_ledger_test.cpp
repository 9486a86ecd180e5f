#include "penstock/model/device/memory_ledger.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <latch>
#include <thread>
#include <vector>

namespace penstock::model::detail {
namespace {

constexpr int64_t kBytes = 4096;

/// What the ledger holds now, of all owners.
MemoryBytes held(MemoryLedger& ledger) {
  ledger.reset_peaks();
  return ledger.peak();
}

/// Of the owners up to `last`, each by its own account.
int64_t sum_of_owners(MemoryLedger& ledger, uint16_t last) {
  ledger.reset_peaks();
  int64_t sum = 0;
  for (uint16_t owner = 0; owner <= last; ++owner) sum += ledger.owner_peak(owner).sum();
  return sum;
}

/// Each with a tag of its own; they begin together.
void in_threads(size_t count, const auto& work) {
  std::latch start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      work(t);
    });
  }
}

TEST(MemoryLedger, ThreadsThatChangeOneBlockLeaveItOnce) {
  MemoryLedger ledger;
  MemoryLedger::Block block(kBytes);
  ledger.add(block);
  in_threads(2, [&](size_t t) {
    const auto owner = static_cast<uint16_t>(t + 1);
    for (int i = 0; i < 2'000'000; ++i)
      ledger.change(block, owner, t == 0 ? MemoryKind::Messages : MemoryKind::Activations);
  });
  const MemoryBytes kinds = held(ledger);
  EXPECT_EQ(ledger.now(), kBytes);
  EXPECT_EQ(kinds.sum(), kBytes);
  EXPECT_EQ(sum_of_owners(ledger, 2), kBytes);
  EXPECT_EQ(kinds[MemoryKind::Other], 0) << "as it was at first";
  EXPECT_EQ(ledger.owner_peak(1)[MemoryKind::Messages], kinds[MemoryKind::Messages]);
  EXPECT_EQ(ledger.owner_peak(2)[MemoryKind::Activations], kinds[MemoryKind::Activations]);
  EXPECT_EQ(kinds[MemoryKind::Messages] * kinds[MemoryKind::Activations], 0) << "one of them";
  ledger.remove(block);
  EXPECT_EQ(held(ledger), MemoryBytes{});
}

TEST(MemoryLedger, CountsOwnersThatComeAtTheSameTime) {
  for (int round = 0; round < 50; ++round) {
    MemoryLedger ledger;
    std::deque<MemoryLedger::Block> blocks;
    for (int b = 0; b < 256; ++b) blocks.emplace_back(kBytes);
    in_threads(4, [&](size_t t) {
      for (size_t b = t; b < blocks.size(); b += 4) {
        memory_tag() = {.owner = static_cast<uint16_t>(b + 1), .kind = MemoryKind::Weights};
        ledger.add(blocks[b]);
      }
    });
    EXPECT_EQ(held(ledger)[MemoryKind::Weights], 256 * kBytes);
    EXPECT_EQ(sum_of_owners(ledger, 256), ledger.now());
    for (const MemoryLedger::Block& block : blocks) ledger.remove(block);
    EXPECT_EQ(sum_of_owners(ledger, 256), 0);
  }
}

TEST(MemoryLedger, NotesWhatThereWasAtTheHighestPeak) {
  MemoryLedger ledger;
  std::deque<MemoryLedger::Block> blocks;
  for (int b = 0; b < 4000; ++b) blocks.emplace_back(kBytes);
  in_threads(4, [&](size_t t) {
    memory_tag() = {.owner = static_cast<uint16_t>(t + 1), .kind = MemoryKind::Inputs};
    for (size_t b = t; b < blocks.size(); b += 4) ledger.add(blocks[b]);
  });
  // Nothing was given back: the last note is of all that there is.
  EXPECT_EQ(ledger.peak_bytes(), 4000 * kBytes);
  EXPECT_EQ(ledger.peak()[MemoryKind::Inputs], 4000 * kBytes);
  for (uint16_t owner = 1; owner <= 4; ++owner)
    EXPECT_EQ(ledger.owner_peak(owner).sum(), 1000 * kBytes);
}

TEST(MemoryLedger, WhatAPassLeavesIsOfItsKindWhoeverFreesIt) {
  MemoryLedger ledger;
  MemoryLedger::Block kept(kBytes);
  MemoryLedger::Block passing(3 * kBytes);
  const MemoryTag before = memory_tag();
  memory_tag() = {.owner = 1, .kind = MemoryKind::Activations, .pass = ledger.begin_pass(1)};
  ledger.add(kept);
  ledger.add(passing);
  EXPECT_EQ(ledger.owner_peak(1)[MemoryKind::Working], 4 * kBytes);
  in_threads(1, [&](size_t) { ledger.remove(passing); });
  ledger.end_pass(1, memory_tag().pass, MemoryKind::Activations);
  memory_tag() = before;
  EXPECT_EQ(ledger.owner_peak(1)[MemoryKind::Activations], kBytes);
  EXPECT_EQ(ledger.owner_peak(1)[MemoryKind::Working], 3 * kBytes);
  EXPECT_EQ(held(ledger)[MemoryKind::Activations], kBytes);
  in_threads(1, [&](size_t) { ledger.remove(kept); });
  EXPECT_EQ(held(ledger), MemoryBytes{});
}

}  // namespace
}  // namespace penstock::model::detail
