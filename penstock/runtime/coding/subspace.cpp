#include "penstock/runtime/coding/subspace.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/orthonormal_basis.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {
namespace {

void check_work(int64_t width, int64_t rank) {
  const int64_t work = saturating_mul(width, saturating_mul(rank, rank));
  if (work <= kMostBasisWork) return;
  throw ConfigError(fmt::format(
      "the boundary coding subspace:{} of tokens of width {} needs a basis of {} x {} x {} = {} "
      "operations, allowed are {}: expected a rank of at most {} for this width",
      rank, width, width, rank, rank, work, kMostBasisWork,
      static_cast<int64_t>(std::sqrt(static_cast<double>(kMostBasisWork / width)))));
}

/// [width, rank]
at::Tensor basis_of(int64_t width, int64_t rank) {
  static Mutex mutex;
  static std::map<std::pair<int64_t, int64_t>, at::Tensor> bases;
  const MutexLock lock(mutex);
  at::Tensor& basis = bases[{width, rank}];
  if (!basis.defined()) {
    check_work(width, rank);
    std::vector<float> numbers = orthonormal_basis(width, rank);
    basis = at::from_blob(numbers.data(), {width, rank}, at::kFloat).clone();
  }
  return basis;
}

}  // namespace

void prepare_subspace(int64_t width, int64_t rank) { basis_of(width, rank); }

at::Tensor into_subspace(const at::Tensor& tokens, int64_t rank) {
  return at::matmul(tokens, basis_of(tokens.sizes().back(), rank));
}

at::Tensor out_of_subspace(const at::Tensor& coefficients, int64_t width) {
  return at::matmul(coefficients, basis_of(width, coefficients.sizes().back()).t());
}

}  // namespace penstock::runtime
