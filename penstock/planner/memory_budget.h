// How much memory the stores of a search may take together. It counts what they reserve and does
// not ask the system, so that the same input ends the same way.
//
//   MemoryBudget budget(1'000'000'000);
//   HeldBytes held(&budget);
//   make_room(labels, held);  // throws OutOfMemory where the budget would be passed
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/planner/search_ended.h"

namespace penstock::planner {

/// The budget was met before there was an answer. Never leaves make_plan().
class OutOfMemory : public SearchEnded {
 public:
  OutOfMemory() : SearchEnded("the memory budget was met") {}
};

/// Shared by all stores of one planning run. Not thread-safe.
class MemoryBudget {
 public:
  /// 0: none.
  explicit MemoryBudget(int64_t bytes = 0) : bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }
  int64_t held() const { return held_; }
  /// Of held(), so far.
  int64_t peak() const { return peak_; }
  /// How often more was asked for than is left.
  int64_t refusals() const { return refusals_; }

  /// Throws OutOfMemory, and takes nothing, where more than the budget would be held.
  void take(int64_t bytes) {
    if (bytes_ > 0 && bytes > bytes_ - held_) {
      ++refusals_;
      throw OutOfMemory();
    }
    held_ += bytes;
    peak_ = std::max(peak_, held_);
  }
  void give_back(int64_t bytes) { held_ -= bytes; }

 private:
  int64_t bytes_ = 0;
  int64_t held_ = 0;
  int64_t peak_ = 0;
  int64_t refusals_ = 0;
};

/// What one store holds of a budget, given back at its end.
class HeldBytes {
 public:
  /// Null: no budget. It must outlive this.
  explicit HeldBytes(MemoryBudget* budget) : budget_(budget) {}
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() { set(int64_t{0}); }

  /// Holds so much from now on. Throws OutOfMemory, and changes nothing, where the budget would be
  /// passed.
  void set(int64_t bytes) {
    if (budget_ == nullptr) return;
    if (bytes > bytes_) {
      budget_->take(bytes - bytes_);
    } else {
      budget_->give_back(bytes_ - bytes);
    }
    bytes_ = bytes;
  }
  void set(size_t bytes) { set(static_cast<int64_t>(bytes)); }
  void add(int64_t bytes) { set(bytes_ + bytes); }
  void add(size_t bytes) { add(static_cast<int64_t>(bytes)); }

 private:
  MemoryBudget* budget_;
  int64_t bytes_ = 0;
};

/// Makes room for one more item. While a vector grows it is there twice, which counts. `held` is of
/// these items alone.
template <class Item>
void make_room(std::vector<Item>& items, HeldBytes& held) {
  if (items.size() < items.capacity()) return;
  constexpr size_t kFirst = 1024;
  const size_t larger = std::max(kFirst, items.capacity() + items.capacity() / 2);
  held.set((items.capacity() + larger) * sizeof(Item));
  items.reserve(larger);
  held.set(larger * sizeof(Item));
}

}  // namespace penstock::planner
