// Reads the cells of PyTorch's CSV. pytorch_csv.cpp decides what the rows mean together.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/schedule/action.h"

namespace penstock::schedule {

/// A row that holds actions. REDUCE_GRAD is SyncGradients here, and F comes before the B or I that
/// runs with it.
struct PyTorchRow {
  int64_t line = 0;
  std::vector<Action> actions = {};
  /// The actions of each OVERLAP_F_B that is no F and B or I of different micro-batches: the first,
  /// and the one after the last. Of the others F has Action::with_next.
  std::vector<std::pair<size_t, size_t>> overlaps = {};
};

/// Counts of cells that were read as something else or skipped.
struct PyTorchCells {
  std::vector<PyTorchRow> rows;
  /// Line of a row without actions before another row; 0: none.
  int64_t first_empty_line = 0;
  int64_t shards = 0;  ///< UNSHARD and RESHARD
  int64_t waits = 0;   ///< WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD
  int64_t sends_without_wait = 0;
};

/// Throws ParseError naming line and cell.
PyTorchCells read_pytorch_cells(std::string_view text, std::string_view place);

}  // namespace penstock::schedule
