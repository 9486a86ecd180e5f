// Environments as maps, for tests of what launchers say.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "penstock/launch/job_environment.h"
#include "penstock/util/error.h"

namespace penstock::launch {

using Environment = std::map<std::string, std::string>;

inline std::optional<JobEnvironment> read_with_reason(const Environment& environment) {
  return job_environment([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

/// Without JobEnvironment::reason.
inline std::optional<JobEnvironment> read_job(const Environment& environment) {
  auto job = read_with_reason(environment);
  if (job) job->reason.clear();
  return job;
}

/// `base` with each variable of `changes`; the value "-" takes one away.
inline Environment with(Environment base, const Environment& changes) {
  for (const auto& [name, value] : changes) {
    base[name] = value;
    if (value == "-") base.erase(name);
  }
  return base;
}

inline std::string environment_refusal(const Environment& environment) {
  try {
    read_job(environment);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace penstock::launch
