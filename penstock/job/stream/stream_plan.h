// The stages of a stream: the fewest that reach the frame rate that is wanted, or the fastest.
#pragma once

#include <optional>
#include <string>

#include "penstock/frames/frame.h"
#include "penstock/model/model.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"
#include "penstock/stream/stream_meter.h"

namespace penstock::job {

struct StreamPlanRequest {
  plan::Strategy strategy = plan::Strategy::Online;
  std::optional<plan::WeightPolicy> weights = {};  ///< nothing: current
  int workers = 1;                                 ///< the most stages
  double fps = 0;                                  ///< wanted; 0: the fastest
  frames::FrameSize size = {};                     ///< of the frames; 0x0: not known
  model::OptimizerSpec optimizer = {};
  /// The GPU that is measured, as ProfilerOptions::device; empty: the CPU.
  std::string device = {};
  bool device_graphs = false;                       ///< ProfilerOptions::device_graphs
  std::optional<cluster::Level> between_gpus = {};  ///< nothing: as threads
};

/// The profile is of one frame. Throws NoAnswer when there is no plan at all.
plan::Plan stream_plan(const profile::Profile& profile, const StreamPlanRequest& request);

/// Whether the plan reaches the frame rate, by how much it misses it, and what would reach it:
/// workers, or frames of another size; in lines for people.
std::string frame_rate_text(const plan::Plan& plan, const profile::Profile& profile,
                            const StreamPlanRequest& request);

/// The profile with every layer's times scaled to what its stage was measured to take.
profile::Profile adjusted(profile::Profile profile, const plan::Plan& plan,
                          const std::vector<stream::StageTimes>& measured);

/// Another plan whose slowest stage takes so much less than the measured one that it is faster by
/// `margin` (0.25: a quarter), by the adjusted profile. Nothing: there is none, or too few frames
/// have been measured.
std::optional<plan::Plan> better_plan(const profile::Profile& profile, const plan::Plan& now,
                                      const std::vector<stream::StageTimes>& measured,
                                      const StreamPlanRequest& request, double margin);

}  // namespace penstock::job
