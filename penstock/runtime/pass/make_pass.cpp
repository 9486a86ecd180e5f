#include <string>
#include <utility>

#include "penstock/runtime/pass/graph_pass.h"
#include "penstock/runtime/pass/newest_pass.h"
#include "penstock/runtime/pass/offloaded_pass.h"
#include "penstock/runtime/pass/pass.h"
#include "penstock/runtime/pass/tape_pass.h"
#include "penstock/runtime/sums/stage_sums.h"

namespace penstock::runtime {

namespace {

std::unique_ptr<TapePass> make_tape_pass(const StageContext& context, StageSums& sums,
                                         SegmentEnds ends) {
  const schedule::ScheduleShape& shape = context.shape();
  if (shape.policy == schedule::WeightPolicy::Current)
    return std::make_unique<NewestPass>(context, sums, std::move(ends));
  if (shape.recomputes(context.stage()))
    return std::make_unique<RecomputedPass>(context, sums, std::move(ends));
  if (shape.offloads(context.stage()) && !context.device().is_host())
    return std::make_unique<OffloadedPass>(context, sums, std::move(ends));
  return std::make_unique<TapePass>(context, sums, std::move(ends));
}

}  // namespace

std::unique_ptr<Pass> make_pass(const StageContext& context, StageSums& sums) {
  if (!context.run.training) return std::make_unique<EvaluationPass>(context);
  const bool splits = context.run.splits_backward[context.stage().index()];
  std::unique_ptr<TapePass> by_tape = make_tape_pass(
      context, sums, splits ? cut_everywhere(context.module()) : sums.segment_ends());
  StageGraphs* const graphs = context.replica.graphs.get();
  if (graphs == nullptr) return by_tape;
  graphs->begin_run();
  std::string obstacle = graph_obstacle(context);
  if (!obstacle.empty()) graphs->refuse(std::move(obstacle));
  if (!graphs->obstacle().empty()) return by_tape;
  return std::make_unique<GraphPass>(context, sums, std::move(by_tape));
}

}  // namespace penstock::runtime
