#include "penstock/runtime/fabric/local/local_sum.h"

#include "penstock/runtime/fabric/local/delayed_reduce.h"
#include "penstock/runtime/fabric/local/shared_reduce.h"

namespace penstock::runtime {

std::unique_ptr<LocalSum> make_local_sum(plan::GradientSync sync, int replicas, size_t count,
                                         int64_t staleness, FloatType precision) {
  if (sync == plan::GradientSync::Asynchronous)
    return std::make_unique<DelayedReduce>(replicas, count, staleness);
  return std::make_unique<SharedReduce>(replicas, count, precision);
}

}  // namespace penstock::runtime
