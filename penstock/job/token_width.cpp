#include "penstock/job/token_width.h"

#include <algorithm>
#include <map>

namespace penstock::job {

int64_t token_width(const model::Model& model) {
  std::map<int64_t, int64_t> of_tokens;
  std::map<int64_t, int64_t> of_all;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    for (const model::Shape& shape : model.output_shapes(LayerId{l})) {
      if (shape.empty()) continue;
      ++of_all[shape.back()];
      if (shape.size() == 2) ++of_tokens[shape.back()];
    }
  }
  const auto& counts = of_tokens.empty() ? of_all : of_tokens;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? 0 : most->first;
}

}  // namespace penstock::job
