// The options of a training that change what is learned (options::kept_options), as a checkpoint
// has them.
//
//   if (resumed) std::cerr << changed_settings(saved_settings(position), options.settings);
#pragma once

#include <map>
#include <string>

#include "penstock/train/checkpoint/manifest.h"

namespace penstock::job {

/// Those that a checkpoint knows; of an older one only a few.
std::map<std::string, std::string> saved_settings(const train::CheckpointPosition& position);

/// A warning, a line, that names each option that both have with different values; empty: none.
std::string changed_settings(const std::map<std::string, std::string>& saved,
                             const std::map<std::string, std::string>& now);

}  // namespace penstock::job
