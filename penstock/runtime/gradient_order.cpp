#include "penstock/runtime/gradient_order.h"

namespace penstock::runtime {

std::vector<GradientPart> gradient_parts(const std::vector<LayerId>& consumers,
                                         const std::vector<StageId>& stage_of_layer, StageId home,
                                         bool is_output) {
  std::vector<GradientPart> parts;
  if (is_output) parts.push_back({home, {}});
  bool at_beginning = !is_output;
  for (size_t i = consumers.size(); i-- > 0;) {
    const StageId stage = stage_of_layer[consumers[i].index()];
    at_beginning =
        at_beginning && (parts.empty() || (parts.front().stage == stage && stage != home));
    if (at_beginning && !parts.empty()) {
      parts.front().consumers.push_back(consumers[i]);
    } else {
      parts.push_back({stage, {consumers[i]}});
    }
  }
  return parts;
}

}  // namespace penstock::runtime
