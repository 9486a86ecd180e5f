// What a user asks of a profile: plain values in sections, without libtorch.
//
//   ProfileRequest request{.model = {.name = "mlp"}};
//   model::ProfilerOptions profiler = profiler_options_of(request);
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/frames/task.h"
#include "penstock/model/loss_spec.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/model/profiler_options.h"
#include "penstock/options/request.h"
#include "penstock/util/numbers/precision.h"

namespace penstock::options {

struct MeasureRequest {
  int64_t batch_size = 64;  ///< samples per micro-batch
  Precision precision = Precision::Float32;
  bool analytic = false;  ///< estimated for `device`, not measured
  std::string device;     ///< empty: the CPU
  bool device_graphs = false;
  std::optional<int64_t> samples;  ///< timed passes; nothing: until their mean is known
  int warmup = 2;
  model::Repeats repeats = model::Repeats::Auto;
  std::string lengths_of;                 ///< a data set whose lengths are measured; empty: none
  std::string layers;                     ///< profile::parse_layers(); empty: all
  int threads = 1;                        ///< per worker
  std::optional<int64_t> concurrency;     ///< nothing: usual_concurrency()
  std::optional<frames::Task> task = {};  ///< of a stream; nothing: a model for `train`
  uint64_t seed = 1;
};

struct ProfileOutputRequest {
  std::string file;  ///< empty: none
  bool json = false;
};

struct ProfileRequest {
  ModelRequest model = {};
  model::OptimizerSpec optimizer = {};
  model::LossSpec loss = {};
  MeasureRequest run = {};
  ProfileOutputRequest output = {};
  RunFileSection file = {};
};

/// Workers that measure at the same time on this machine: one, or two where it has the cores.
int usual_concurrency();

/// How the request measures; the device is found later, and the loss may be the model's own.
model::ProfilerOptions profiler_options_of(const ProfileRequest& request);

/// What can be said before a model is made. Throws ConfigError that names the option.
void check(const ProfileRequest& request);

}  // namespace penstock::options
