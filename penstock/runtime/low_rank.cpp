#include "penstock/runtime/low_rank.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::runtime {

namespace {

/// Below this share of a column's length, what is left of it is rounding of float32.
constexpr double kLeastLeft = 1e-5;

using Column = std::vector<double>;

double dot(const Column& a, const Column& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// A standard normal number nearly: the sum of twelve uniform ones, which no library rounds in a
/// way of its own.
double draw(Rng& rng) {
  double sum = -6;
  for (int k = 0; k < 12; ++k) sum += rng.uniform();
  return sum;
}

/// Takes the earlier columns out of `column` and makes its length 1; false where hardly anything is
/// left.
bool take_out(const std::vector<Column>& columns, size_t count, Column& column) {
  const double before = std::sqrt(dot(column, column));
  for (size_t k = 0; k < count; ++k) {
    const double part = dot(columns[k], column);
    for (size_t i = 0; i < column.size(); ++i) column[i] -= part * columns[k][i];
  }
  const double left = std::sqrt(dot(column, column));
  // What is not finite is kept: training that diverges is to be seen.
  if (left <= kLeastLeft * before) return false;
  for (double& number : column) number /= left;
  return true;
}

std::vector<Column> columns_of(const at::Tensor& tensor) {
  PENSTOCK_CHECK(tensor.is_contiguous() && tensor.dim() == 2, tensor.dim());
  const auto rows = static_cast<size_t>(tensor.size(0));
  std::vector<Column> columns(static_cast<size_t>(tensor.size(1)), Column(rows));
  const float* next = tensor.data_ptr<float>();
  for (size_t i = 0; i < rows; ++i) {
    for (Column& column : columns) column[i] = *next++;
  }
  return columns;
}

void write_columns(const std::vector<Column>& columns, at::Tensor& tensor) {
  float* next = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    for (const Column& column : columns)
      *next++ = static_cast<float>(column[static_cast<size_t>(i)]);
  }
}

}  // namespace

std::vector<size_t> orthogonalize(at::Tensor& tensor) {
  std::vector<Column> columns = columns_of(tensor);
  std::vector<size_t> dropped;
  for (size_t k = 0; k < columns.size(); ++k) {
    if (take_out(columns, k, columns[k])) continue;
    std::fill(columns[k].begin(), columns[k].end(), 0.0);
    dropped.push_back(k);
  }
  write_columns(columns, tensor);
  return dropped;
}

void orthogonalize(at::Tensor& tensor, uint64_t seed) {
  std::vector<Column> columns = columns_of(tensor);
  constexpr int kDraws = 8;  // random columns do not depend on few others
  for (size_t k = 0; k < columns.size(); ++k) {
    bool has_length = take_out(columns, k, columns[k]);
    Rng rng(derive_seed(seed, k));
    for (int draws = 0; !has_length && draws < kDraws; ++draws) {
      for (double& number : columns[k]) number = draw(rng);
      has_length = take_out(columns, k, columns[k]);
    }
    if (!has_length) std::fill(columns[k].begin(), columns[k].end(), 0.0);
  }
  write_columns(columns, tensor);
}

at::Tensor random_columns(int64_t rows, int64_t rank, uint64_t seed) {
  at::Tensor columns = at::zeros({rows, rank}, at::kFloat);
  orthogonalize(columns, seed);
  return columns;
}

void add_product(at::Tensor& target, const at::Tensor& p, const at::Tensor& q, float sign) {
  const int64_t rows = p.size(0);
  const int64_t columns = q.size(0);
  const int64_t rank = p.size(1);
  PENSTOCK_CHECK(target.is_contiguous() && target.numel() == rows * columns && q.size(1) == rank,
                 target.numel(), rows, columns, rank);
  const at::Tensor transposed = q.t().contiguous();
  const float* const left = p.data_ptr<float>();
  const float* const right = transposed.data_ptr<float>();
  float* const out = target.data_ptr<float>();
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, columns * rank));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t r = 0; r < rank; ++r) {
        const float factor = sign * left[i * rank + r];
        const float* const row = right + r * columns;
        float* const to = out + i * columns;
        for (int64_t j = 0; j < columns; ++j) to[j] += factor * row[j];
      }
    }
  });
}

}  // namespace penstock::runtime
