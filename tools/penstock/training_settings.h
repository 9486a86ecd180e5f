// The options of a training that change what is learned, as checkpoints keep them.
//
//   options.settings = training_settings(arguments, train::data_digest(*data.train));
//   if (resumed) std::cerr << changed_settings(saved_settings(position), options.settings);
#pragma once

#include <map>
#include <string>

#include "penstock/train/checkpoint/manifest.h"
#include "tools/penstock/train_arguments.h"

namespace penstock::tool {

/// By the option's name; the plan is there already. `data`: what tells the training set apart.
std::map<std::string, std::string> training_settings(const TrainArguments& arguments,
                                                     const std::string& data);

/// Those that a checkpoint knows; of an older one only a few.
std::map<std::string, std::string> saved_settings(const train::CheckpointPosition& position);

/// A warning, a line, that names each option that both have with different values; empty: none.
std::string changed_settings(const std::map<std::string, std::string>& saved,
                             const std::map<std::string, std::string>& now);

}  // namespace penstock::tool
