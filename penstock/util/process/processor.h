// What this machine's processor is, and can do.
//
//   processor_name() == "AMD EPYC 9B14"
#pragma once

#include <string>

#include "penstock/util/numbers/short_floats.h"

namespace penstock {

/// Linux's "model name"; "CPU" where the system does not say.
std::string processor_name();

/// Linux's "flags" or "Features", sorted: of two processors with the same, one runs what is
/// compiled for the other.
std::string processor_features();

/// Whether it multiplies numbers of this type by instructions of its own, as far as Linux says.
bool multiplies(FloatType type);

}  // namespace penstock
