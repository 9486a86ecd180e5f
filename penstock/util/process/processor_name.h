// What this machine calls its processor.
//
//   processor_name() == "AMD EPYC 9B14"
#pragma once

#include <string>

namespace penstock {

/// Linux's "model name"; "CPU" where the system does not say.
std::string processor_name();

}  // namespace penstock
