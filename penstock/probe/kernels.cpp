#include "penstock/probe/kernels.h"

// The processor decides at load time which of these runs. Sanitizers and other processors get the
// plain one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define PENSTOCK_CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define PENSTOCK_CLONES
#endif

namespace penstock::probe {

namespace {

constexpr size_t kRows = 32, kDepth = 32, kColumns = 128;
// rows of b per pass over a row of c, so that arithmetic and not the traffic with the cache decides
constexpr size_t kStep = 8;

/// c += a b, of [kRows, kDepth] and [kDepth, kColumns].
PENSTOCK_CLONES void multiply(const float* __restrict a, const float* __restrict b,
                              float* __restrict c) {
  for (size_t i = 0; i < kRows; ++i) {
    float* const row = c + i * kColumns;
    for (size_t k = 0; k < kDepth; k += kStep) {
      const float* const factor = a + i * kDepth + k;
      const float* const rows = b + k * kColumns;
      const float f0 = factor[0], f1 = factor[1], f2 = factor[2], f3 = factor[3], f4 = factor[4],
                  f5 = factor[5], f6 = factor[6], f7 = factor[7];
      for (size_t j = 0; j < kColumns; ++j) {
        row[j] += f0 * rows[j] + f1 * rows[j + kColumns] + f2 * rows[j + 2 * kColumns] +
                  f3 * rows[j + 3 * kColumns] + f4 * rows[j + 4 * kColumns] +
                  f5 * rows[j + 5 * kColumns] + f6 * rows[j + 6 * kColumns] +
                  f7 * rows[j + 7 * kColumns];
      }
    }
  }
}

}  // namespace

PENSTOCK_CLONES void add_vectors(float* __restrict sum, const float* __restrict part,
                                 size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += part[i];
}

MatrixKernel::MatrixKernel()
    : a_(kRows * kDepth, 1.0f / kDepth), b_(kDepth * kColumns, 1.0f), c_(kRows * kColumns, 0.0f) {}

int64_t MatrixKernel::run() {
  multiply(a_.data(), b_.data(), c_.data());
  ++runs_;
  return static_cast<int64_t>(2 * kRows * kDepth * kColumns);
}

}  // namespace penstock::probe
