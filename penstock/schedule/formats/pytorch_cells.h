// Reads the cells of PyTorch's CSV; what the rows mean together is decided in pytorch_csv.cpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/schedule/action.h"

namespace penstock::schedule {

/// A row that holds actions. REDUCE_GRAD is SyncGradients here.
struct PyTorchRow {
  int64_t line = 0;
  std::vector<Action> actions;
};

/// Cells that were read as something else or not at all.
struct PyTorchCells {
  std::vector<PyTorchRow> rows;
  /// Of a row without actions that stands before another row, 0: none.
  int64_t first_empty_line = 0;
  int64_t shards = 0;    ///< UNSHARD and RESHARD
  int64_t overlaps = 0;  ///< OVERLAP_F_B
};

/// Throws ParseError naming line and cell.
PyTorchCells read_pytorch_cells(std::string_view text, std::string_view place);

}  // namespace penstock::schedule
