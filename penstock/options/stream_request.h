// What a user asks of a stream that is learned from: plain values in sections, without libtorch.
//
//   StreamRequest request{.source = {.name = "camera:0"}};
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/frames/task.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/options/request.h"
#include "penstock/plan/strategy.h"
#include "penstock/plan/weight_policy.h"

namespace penstock::options {

struct SourceRequest {
  std::string name = "generated";
  std::string size;   ///< "640x480"; empty: the source's own
  std::string pixel;  ///< of raw frames: "rgb24"...
  bool grey = false;
  double fps = 0;  ///< 0: as fast as frames are taken, or as they come
  bool repeat = false;
  std::optional<int64_t> classes;
  std::optional<int64_t> label_every;
  std::string labels;  ///< a CSV file; empty: the source's own
  int64_t queue = 2;
  bool keep_all = false;
};

struct StreamPlanSection {
  std::string file;  ///< a plan that is made; empty: make one
  plan::Strategy strategy = plan::Strategy::Online;
  std::optional<int64_t> workers;             ///< nothing: chosen
  std::optional<plan::WeightPolicy> weights;  ///< nothing: current
  std::string profile;                        ///< a file; empty: measure
  double fps = 0;                             ///< wanted; 0: the best there is
  double replan_margin = 0.25;                ///< 0: never
};

struct StreamRunRequest {
  int threads = 1;  ///< per stage
  std::string device = "cpu";
  bool device_graphs = false;
  int64_t frames = 0;  ///< 0: without end, as the next one
  double seconds = 0;
  double deadline_ms = 0;  ///< 0: (stages + queue) / frame rate, where that is known
  double stall_s = 10;
  std::string checkpoint;  ///< a folder; empty: none
  bool resume = false;
  double save_every_s = 0;  ///< 0: at the end and when asked for
  uint64_t seed = 1;
};

struct StreamOutputRequest {
  std::string predictions;   ///< a file of JSON lines, one per frame; empty: none
  std::optional<int> serve;  ///< the live page's port, 0: any free one; nothing: no page
  bool json = false;
};

struct StreamRequest {
  SourceRequest source = {};
  ModelRequest model = {.name = "partime"};
  /// Nothing: pixels or label, as the source has labels, otherwise reconstruct.
  std::optional<frames::Task> task = {};
  model::OptimizerSpec optimizer = {.momentum = 0};
  double learning_rate = 0.002;
  StreamPlanSection plan = {};
  StreamRunRequest run = {};
  StreamOutputRequest output = {};
  RunFileSection file = {};
};

/// What can be said before a source is opened or a model is made. Throws ConfigError that names the
/// option.
void check(const StreamRequest& request);

}  // namespace penstock::options
