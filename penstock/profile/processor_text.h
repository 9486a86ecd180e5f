// How a profile names the CPU that it was measured on, which also says that it was one.
//
//   processor_text("AMD EPYC", 2);   // "AMD EPYC, 2 threads"
//   is_of_processor(profile);        // measured on a CPU: workers compute in the host's memory
#pragma once

#include <string>
#include <string_view>

#include "penstock/profile/profile.h"

namespace penstock::profile {

/// Profile::device of a measurement by so many threads of a CPU.
std::string processor_text(std::string_view processor, int threads);

/// Whether the profile was measured, and on a CPU. Pure.
bool is_of_processor(const Profile& profile);

}  // namespace penstock::profile
