// The secret by which ranks of one job know each other.
#pragma once

#include <string>

namespace penstock::launch {

/// 32 random hexadecimal digits from the system. Throws RuntimeError if it has none to give.
std::string make_job_token();

}  // namespace penstock::launch
