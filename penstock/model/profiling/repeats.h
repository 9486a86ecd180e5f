// Which layers are run so that each layer of a range has costs: one of each class of equal layers
// and, as a check, another one. Internal to the profiler.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/model/profiling/layer_classes.h"
#include "penstock/model/profiling/measurement.h"
#include "penstock/profile/share.h"

namespace penstock::model::detail {

/// The fewest equal layers of which not all are run.
inline constexpr size_t kLeastRepeats = 3;

struct Coverage {
  std::vector<LayerId> run;       ///< ascending
  std::vector<LayerId> stand_in;  ///< as part_of() takes it
};

/// Of each class the first layer and the last, for comparison; all other layers of the range; and
/// what makes those of their inputs that cannot be made up, as they are no real numbers.
Coverage cover(const Model& model, const profile::LayerRange& layers,
               const std::vector<LayerClass>& classes);

/// Of a class, its two layers that were run.
struct CheckedPair {
  size_t first = 0;  ///< position in Measured's lists
  size_t second = 0;
  size_t layers = 0;  ///< of the class
};

/// Whether two layers took different times: their means are more than 10 % of the longer one and
/// more than four standard errors of the difference apart, and for all layers of the class that
/// makes at least 1 % of `pass_ns`, the time of a pass of all layers. The difference is taken
/// within each pass, so that a machine that is slow for a while does not count. False with fewer
/// than five samples, of which no error is known.
bool differ(const std::vector<std::vector<LayerTimes>>& samples, const CheckedPair& pair,
            int64_t pass_ns);

}  // namespace penstock::model::detail
