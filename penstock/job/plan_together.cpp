#include "penstock/job/plan_together.h"

#include <fmt/format.h>

#include <exception>
#include <string_view>

namespace penstock::job {

namespace {

/// Before what rank 0 tells the others: to measure, or that this is the plan.
constexpr std::string_view kMeasure = "measure ";
constexpr std::string_view kPlan = "plan ";

std::string lead(Job& job, const std::function<std::string(const MeasureFor&)>& make,
                 const MeasureFor& measure) {
  bool is_together = false;
  const MeasureFor measure_all = [&](int64_t micro_batches) {
    is_together = true;
    job.from_first([&] { return fmt::format("{}{}", kMeasure, micro_batches); });
    JobProfile profile = measure(micro_batches);
    is_together = false;
    return profile;
  };
  std::string plan;
  std::exception_ptr failure;
  try {
    plan = make(measure_all);
  } catch (...) {
    // What fails while all measure, all know.
    if (is_together) throw;
    failure = std::current_exception();
  }
  job.from_first([&] {
    if (failure) std::rethrow_exception(failure);
    return fmt::format("{}{}", kPlan, plan);
  });
  return plan;
}

}  // namespace

std::string plan_together(Job& job, const std::function<std::string(const MeasureFor&)>& make,
                          const MeasureFor& measure) {
  if (job.is_first()) return lead(job, make, measure);
  for (;;) {
    const std::string text = job.from_first([] { return std::string(); });
    if (text.starts_with(kPlan)) return text.substr(kPlan.size());
    measure(std::stoll(text.substr(kMeasure.size())));
  }
}

}  // namespace penstock::job
