#include "penstock/schedule/generators/zb_auto.h"

#include <array>

#include "penstock/schedule/generators/cost_order.h"
#include "penstock/schedule/generators/eager_one_f_one_b.h"
#include "penstock/schedule/generators/gpipe.h"
#include "penstock/schedule/generators/one_at_a_time.h"
#include "penstock/schedule/generators/one_f_one_b_flush.h"
#include "penstock/schedule/generators/zb_h1.h"
#include "penstock/schedule/generators/zb_h2.h"

namespace penstock::schedule {
namespace {

template <int64_t slack>
WorkerLists eager(const ScheduleShape& shape) {
  ScheduleShape earlier = shape;
  earlier.slack = slack;
  return generate_compute<Strategy::EagerOneFOneB>(earlier);
}

constexpr std::array<WorkerLists (*)(const ScheduleShape&), 9> kKnown = {
    &generate_compute<Strategy::ModelParallel>,
    &generate_compute<Strategy::OneFOneBFlush>,
    &generate_compute<Strategy::ZbH1>,
    &generate_compute<Strategy::ZbH2>,
    &eager<1>,
    &eager<2>,
    &eager<4>,
    &eager<8>,
    &generate_compute<Strategy::GPipe>};

}  // namespace

template <>
WorkerLists generate_compute<Strategy::ZbAuto>(const ScheduleShape& shape) {
  return cost_made_lists(shape, kKnown, 2 * int64_t{shape.num_workers()} - 1);
}

}  // namespace penstock::schedule
