// A plan that rank 0 makes for a job, while all ranks measure for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "penstock/job/job.h"
#include "penstock/job/profile_together.h"
#include "penstock/profile/profile.h"

namespace penstock::job {

/// Measures the model with the micro-batch size that belongs to so many micro-batches per step.
using MeasureFor = std::function<JobProfile(int64_t micro_batches)>;

/// Collective. What `make` returns on rank 0; each call that it makes of the measurement it is
/// given has all ranks call `measure`, which is collective itself. When `make` throws, all ranks
/// throw.
std::string plan_together(Job& job, const std::function<std::string(const MeasureFor&)>& make,
                          const MeasureFor& measure);

}  // namespace penstock::job
