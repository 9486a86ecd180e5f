// Which stages a list of actions or events names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::schedule {

/// The distinct stages of a worker's actions, ascending. `action_of` maps an element of `list` to
/// its action. O(elements log elements).
template <class List, class ActionOf>
std::vector<int32_t> stages_in(const List& list, ActionOf action_of) {
  std::vector<int32_t> stages;
  for (const auto& element : list) {
    const int32_t stage = action_of(element).stage.value;
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
  }
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

}  // namespace penstock::schedule
