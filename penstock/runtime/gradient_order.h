// The order in which the parts of a value's gradient are summed. Each layer that reads the value
// contributes one part; the canonical order is from the last reader to the first, with the loss
// first, as if the whole model were one stage. The order must not depend on where the model is cut.
// So a stage may sum its own readers' parts before it sends them only where the canonical sum
// begins with them; otherwise it sends them one by one, and the stage that made the value adds them
// in the canonical order. (With up to two readers, or if one later stage has all readers, there is
// always one part per stage.)
//
//   v is made in stage 0 and read by layers 3 (stage 1), 5 and 6 (stage 2), 8 (stage 1):
//   ((g8 + g6) + g5) + g3: stage 1 sends g8 and g3 separately, stage 2 sends g6 and g5 separately.
#pragma once

#include <vector>

#include "penstock/graph/model_graph.h"

namespace penstock::runtime {

/// One addend.
struct GradientPart {
  StageId stage;  ///< that makes it
  /// The layers of the stage whose parts it sums, descending; none: the loss.
  std::vector<LayerId> consumers;

  bool operator==(const GradientPart&) const = default;
};

/// The addends of a value's gradient in the order of summation. `consumers`: the layers that read
/// the value, ascending; `home`: the stage that made it, whose own readers always add separately;
/// `is_output`: the loss, in the home stage, reads it, too.
std::vector<GradientPart> gradient_parts(const std::vector<LayerId>& consumers,
                                         const std::vector<StageId>& stage_of_layer, StageId home,
                                         bool is_output);

}  // namespace penstock::runtime
