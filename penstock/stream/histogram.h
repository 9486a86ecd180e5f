// Counts of times in classes that are 2 % wide, so that percentiles need a fixed amount of memory
// however long a stream is. Not thread-safe. Torch-free.
#pragma once

#include <array>
#include <cstdint>

namespace penstock::stream {

class Histogram {
 public:
  void add(int64_t ns);
  void clear() { *this = {}; }
  int64_t count() const { return count_; }
  /// The upper end of the class below which `share` (0..1) of the times lie, within 2 %; 0 when
  /// there are none.
  int64_t percentile(double share) const;

 private:
  // 1 us to 1000 s; shorter and longer ones go to the first and the last class.
  static constexpr size_t kClasses = 1050;
  std::array<int64_t, kClasses> counts_{};
  int64_t count_ = 0;
};

}  // namespace penstock::stream
