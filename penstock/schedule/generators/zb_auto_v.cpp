#include "penstock/schedule/generators/zb_auto_v.h"

#include <array>

#include "penstock/schedule/generators/cost_order.h"
#include "penstock/schedule/generators/dualpipe_v.h"
#include "penstock/schedule/generators/v_half.h"
#include "penstock/schedule/generators/v_min.h"
#include "penstock/schedule/generators/zb_v.h"

namespace penstock::schedule {
namespace {

constexpr std::array<WorkerLists (*)(const ScheduleShape&), 4> kKnownOfVShape = {
    &generate_compute<Strategy::ZbV>, &generate_compute<Strategy::VHalf>,
    &generate_compute<Strategy::VMin>, &generate_compute<Strategy::DualPipeV>};

}  // namespace

template <>
WorkerLists generate_compute<Strategy::ZbAutoV>(const ScheduleShape& shape) {
  return cost_made_lists(shape, kKnownOfVShape, int64_t{shape.num_stages()});
}

}  // namespace penstock::schedule
