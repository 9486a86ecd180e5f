// zb-auto-v: as zb-auto, over two stages per worker in a V (v_placement()), whose forwards end
// where they began.
//
// Never slower, by its own clock (orders/order_clock.h), than zb-v, v-half, v-min and dualpipe-v
// where those keep as little, and never slower when it may keep more. Bubble at F = I = W of a
// stage: p-1, where it keeps 2p, for any m >= p. Peak stash: at most `keep` stages' micro-batches,
// 2p unless said otherwise. Messages: 2 per link and micro-batch, except in the middle of the V.
// Source: Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024. Differs:
// orders/search_order.h.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::ZbAutoV>(const ScheduleShape& shape);

}  // namespace penstock::schedule
