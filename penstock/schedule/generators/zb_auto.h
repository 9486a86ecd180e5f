// zb-auto: F, I and W of one stage per worker in the order that the stages' costs, the links and
// ScheduleShape::keep ask for. 4 stages, 8 micro-batches, F = I = W, at most 4 kept; I is B- and W
// is W in the grid of `penstock schedule --kind zb-auto --keep 4 --grid`.
//
// Never slower, by its own clock (orders/order_clock.h), than 1f1b-flush, eager-1f1b, zb-h1, zb-h2,
// gpipe or mp where those keep as little, and never slower when it may keep more. Bubble at
// F = I = W: p-1, where it keeps 2p-1 and m >= 2p-1. Peak stash: at most `keep`, 2p-1 unless said
// otherwise. Messages: 2 per link and micro-batch. Source: Qi et al., Zero Bubble Pipeline
// Parallelism, ICLR 2024, 3.1 (the heuristic). Differs: orders/search_order.h.
#pragma once

#include "penstock/schedule/generators/generator.h"

namespace penstock::schedule {

template <>
WorkerLists generate_compute<Strategy::ZbAuto>(const ScheduleShape& shape);

}  // namespace penstock::schedule
