// Times passes of a part of a model until their mean is known. Internal to the profiler.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/model/profiler_options.h"
#include "penstock/model/profiling/model_part.h"
#include "penstock/model/profiling/model_pass.h"
#include "penstock/model/profiling/profiled_loss.h"
#include "penstock/profile/profile.h"

namespace penstock::model::detail {

/// What the passes of a part took; per layer of the part.
struct Measured {
  std::vector<std::vector<LayerTimes>> samples;        ///< of Backward::Whole; at least one
  std::vector<std::vector<LayerTimes>> split_samples;  ///< of Backward::Split; at least one
  std::vector<LayerBytes> bytes;
  profile::PassTimes pass = {};  ///< of `samples`
  bool device_graphs = false;    ///< ProfilerOptions
  int64_t hand_over_ns = 0;
  int64_t copy_bandwidth_bytes_per_s = 0;
};

/// Sum of a pass's forward, backward and step times. Saturates.
int64_t pass_time_ns(const std::vector<LayerTimes>& times);

/// Blocks and throws as measure_profile().
Measured measure(const ModelPart& part, const ProfilerOptions& options,
                 const std::optional<ProfiledLoss>& loss);

}  // namespace penstock::model::detail
