// The command line of `penstock train`, without libtorch: the tool parses it, the training part
// runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

#include "penstock/cluster/device_name.h"
#include "penstock/options/request.h"
#include "penstock/train/train_options.h"
#include "tools/penstock/auto_plan_request.h"

namespace penstock::tool {

/// What was asked for, and what becomes of it on the way to the training.
struct TrainArguments {
  options::TrainRequest request;
  std::vector<std::string_view> given;       ///< rows that the user named
  AutoPlanRequest plan;                      ///< made from the request, as far as it is known
  train::TrainOptions train;                 ///< made from the request, then from the plan
  std::vector<cluster::DeviceName> devices;  ///< of this process, once they have been looked for
};

/// Adds the command.
CLI::App* add_train(CLI::App& parent, TrainArguments& arguments);
/// What can be said before a model is made or data is read, output files included. Throws
/// ConfigError.
void check(const TrainArguments& arguments);

}  // namespace penstock::tool
