// The batch norms with which residual blocks end: those that begin with zeros let every block begin
// as the identity (Goyal et al. 2017, section 5.1).
//
//   for (const LayerId norm : last_norms(model.graph()))
//     model.begin_with({norm, 0}, Init::constant(0));
#pragma once

#include <vector>

#include "penstock/graph/model_graph.h"

namespace penstock::model {

/// Ascending: of each sum, the batch norm that only the sum reads, at the end of its longer branch:
/// not that of a projection beside it. Branches of equal length: none.
std::vector<LayerId> last_norms(const graph::ModelGraph& graph);

/// Whether a layer is a batch norm, built in or of a program.
bool has_batch_norm(const graph::ModelGraph& graph);

}  // namespace penstock::model
