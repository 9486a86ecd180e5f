// What a worker holds at each moment of its list.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/schedule/action.h"

namespace penstock::verify {

/// Calls visit(action, weight versions, stashed micro-batches) with what is held while and after each action that takes memory, first with
/// a null action and what is held at the start. Any list will do. A forward-only schedule stashes nothing.
template <class Visit>
void walk_memory(const std::vector<schedule::Action>& list, bool forward_only, Visit visit) {
  using schedule::Op;
  int64_t versions = 1;
  int64_t stashed = 0;
  visit(static_cast<const schedule::Action*>(nullptr), versions, stashed);
  for (size_t i = 0; i < list.size(); ++i) {
    const schedule::Action& action = list[i];
    switch (action.op) {
      case Op::Forward:
        if (!forward_only) visit(&action, versions, ++stashed);
        break;
      case Op::Backward:
        if (stashed > 0) --stashed;
        break;
      case Op::Step:
        visit(&action, ++versions, stashed);
        break;
      case Op::FreeWeights: {
        const bool in_place = i + 1 < list.size() && list[i + 1].op == Op::Step && list[i + 1].version == action.version;
        if (in_place) {
          ++i;  // the step writes into the freed version
        } else if (versions > 0) {
          --versions;
        }
        break;
      }
      default:
        break;
    }
  }
}

}  // namespace penstock::verify
