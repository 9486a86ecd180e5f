// The two kernels that represent a worker's own work: adding gradients, which memory bandwidth
// bounds, and multiplying matrices, which arithmetic bounds. Portable C++ that the compiler
// vectorises for the processor that it runs on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::probe {

/// sum[i] += part[i]. Reads 8 and writes 4 bytes per number.
void add_vectors(float* sum, const float* part, size_t count);

/// Single-precision matrix products of one fixed small size, [32, 32] times [32, 128]: all of it
/// stays in the first-level cache.
class MatrixKernel {
 public:
  MatrixKernel();
  /// One product, added to the result of those before. Returns its floating-point operations.
  int64_t run();
  /// Keeps the results from being optimised away; every product adds the same to each element.
  float first_element() const { return c_.front(); }
  int64_t runs() const { return runs_; }

 private:
  std::vector<float> a_, b_, c_;
  int64_t runs_ = 0;
};

}  // namespace penstock::probe
