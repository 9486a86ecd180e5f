#include "penstock/util/numbers/orthonormal_basis.h"

#include <cmath>

#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock {
namespace {

/// Close to a normal number, without functions that differ from C library to C library.
double nearly_normal(Rng& rng) {
  constexpr int kUniforms = 12;  // whose variances add up to 1
  double sum = -kUniforms / 2.0;
  for (int i = 0; i < kUniforms; ++i) sum += rng.uniform();
  return sum;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::vector<float> orthonormal_basis(int64_t width, int64_t rank) {
  PENSTOCK_CHECK(rank >= 1 && rank <= width, rank, width);
  Rng rng(derive_seed(hash_name("orthonormal_basis"), width));
  std::vector<std::vector<double>> columns;
  for (int64_t k = 0; k < rank; ++k) {
    std::vector<double> column(static_cast<size_t>(width));
    for (double& number : column) number = nearly_normal(rng);
    // Twice is enough (Giraud et al. 2005).
    for (int pass = 0; pass < 2; ++pass) {
      for (const std::vector<double>& other : columns) {
        const double share = product(column, other);
        for (size_t i = 0; i < column.size(); ++i) column[i] -= share * other[i];
      }
    }
    const double length = std::sqrt(product(column, column));
    for (double& number : column) number /= length;
    columns.push_back(std::move(column));
  }
  std::vector<float> basis;
  basis.reserve(static_cast<size_t>(width * rank));
  for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
    for (const std::vector<double>& column : columns)
      basis.push_back(static_cast<float>(column[i]));
  }
  return basis;
}

}  // namespace penstock
