// What is decided before the first frame of a stream: the task, the model, the plan.
//
//   const StreamSubject subject = stream_subject(request, *source);
//   const auto prepared = prepare_stream(request, subject, {.devices = devices});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/cluster/device_name.h"
#include "penstock/frames/frame_source.h"
#include "penstock/frames/task.h"
#include "penstock/job/prepare.h"
#include "penstock/job/stream/stream_plan.h"
#include "penstock/model/model.h"
#include "penstock/options/stream_request.h"
#include "penstock/plan/plan.h"
#include "penstock/profile/profile.h"

namespace penstock::job {

/// What is learned, and from which frames.
struct StreamSubject {
  frames::Task task;
  model::Model model;  ///< made for the frames
  frames::FrameSize size;
  int classes = 0;               ///< of the labels; 0: there are none
  double frames_per_second = 0;  ///< 0: not known, or as they are taken
  bool is_pipe = false;
  bool waits = false;  ///< the source does, for the pipeline
};
/// Throws ConfigError for a task or a model that does not go with the frames.
StreamSubject stream_subject(const options::StreamRequest& request,
                             const frames::FrameSource& source);

struct PreparedStream {
  std::vector<cluster::DeviceName> devices;  ///< dealt over the stages
  StreamPlanRequest search;                  ///< what the plan is made for, also while running
  std::optional<profile::Profile> profile;   ///< nothing: the plan was given
  plan::Plan plan;
  int64_t deadline_ns = 0;  ///< the latency that a frame should keep; 0: none
};
/// Loads the plan, or measures the model and makes one; tells the listener what comes of it.
/// Nothing: `options.stop` was set meanwhile. Throws ConfigError, and NoAnswer when there is no
/// plan.
std::optional<PreparedStream> prepare_stream(const options::StreamRequest& request,
                                             const StreamSubject& subject,
                                             const PrepareOptions& options);

/// What the user should know of the plan before it runs, in lines; empty: nothing.
std::string stream_notes(const options::StreamRequest& request, const PreparedStream& prepared);

}  // namespace penstock::job
