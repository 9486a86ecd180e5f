#include "penstock/runtime/coding/subspace.h"

#include <ATen/Functions.h>

#include <map>
#include <utility>
#include <vector>

#include "penstock/util/numbers/orthonormal_basis.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {
namespace {

/// [width, rank]
at::Tensor basis_of(int64_t width, int64_t rank) {
  static Mutex mutex;
  static std::map<std::pair<int64_t, int64_t>, at::Tensor> bases;
  const MutexLock lock(mutex);
  at::Tensor& basis = bases[{width, rank}];
  if (!basis.defined()) {
    std::vector<float> numbers = orthonormal_basis(width, rank);
    basis = at::from_blob(numbers.data(), {width, rank}, at::kFloat).clone();
  }
  return basis;
}

}  // namespace

at::Tensor into_subspace(const at::Tensor& tokens, int64_t rank) {
  return at::matmul(tokens, basis_of(tokens.sizes().back(), rank));
}

at::Tensor out_of_subspace(const at::Tensor& coefficients, int64_t width) {
  return at::matmul(coefficients, basis_of(width, coefficients.sizes().back()).t());
}

}  // namespace penstock::runtime
