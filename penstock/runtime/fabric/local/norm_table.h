// Fabric::combine() in shared memory: tables that every worker writes its part of and then reads.
// 1 barrier for the norm, 1 more where stages share weights.
#pragma once

#include <vector>

#include "penstock/runtime/fabric/local/barrier.h"
#include "penstock/runtime/fabric/norm_exchange.h"

namespace penstock::runtime {

/// Thread-safe. Between two barriers everybody writes or everybody reads one of the tables. The
/// tables own what is in them, so that a worker may leave at any time.
class NormTable {
 public:
  NormTable(int workers, std::vector<TieGroup> groups, size_t num_model_weights);

  /// After a timeout the table is closed.
  WaitResult combine(NormShare share, NormTotals& totals, Wait& wait);
  void close() { barrier_.close(); }

 private:
  /// Sum over the copies in their order; undefined if all are.
  at::Tensor tied_sum(size_t group) const;

  Barrier barrier_;
  std::vector<TieGroup> groups_;
  std::vector<std::vector<at::Tensor>> ties_;  ///< by group and copy
  /// Two tables in turn: a fast worker may begin the next round while a slow one still reads this
  /// one's. Weights that nobody contributes to count as 0.
  std::vector<double> squares_[2];
};

}  // namespace penstock::runtime
