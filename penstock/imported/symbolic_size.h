// Sizes that depend on the batch: evaluates the expressions of exported programs. Internal to
// imported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "penstock/exported/program.h"

namespace penstock::imported {

/// The value of each symbol: "s77" -> 32.
using Symbols = std::map<std::string, int64_t>;

/// An expression over symbols, such as "Mul(Integer(2), Symbol('s77', integer=True))". Cheap to
/// copy; immutable.
class SizeExpression {
 public:
  /// Throws ConfigError naming what cannot be read: anything but numbers, symbols, sums, products,
  /// powers with whole exponents, divisions that round down, remainders, minima and maxima.
  explicit SizeExpression(const exported::SymbolicInt& size);

  bool is_number() const { return symbols_.empty(); }
  const std::set<std::string>& symbols() const { return symbols_; }
  /// Throws RuntimeError for a symbol without a value, a division by zero and an overflow.
  int64_t evaluate(const Symbols& symbols) const;
  /// Where the expression is c times one symbol alone (c at least 1): c. Otherwise 0.
  int64_t multiple_of(const std::string& symbol) const;

  struct Term;

 private:
  std::shared_ptr<const Term> root_;
  std::set<std::string> symbols_;
};

}  // namespace penstock::imported
