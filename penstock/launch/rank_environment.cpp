#include "penstock/launch/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace penstock::launch {

namespace {

constexpr std::string_view kFailurePipe = "PENSTOCK_FAILURE_PIPE";
constexpr std::array<std::string_view, 10> kOurs = {
    "RANK",        "WORLD_SIZE",         "LOCAL_RANK",       "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "PENSTOCK_JOB_TOKEN", "PENSTOCK_RESTART", "PENSTOCK_SERVERS", kFailurePipe};
// They would change what the ranks take from ours.
constexpr std::array<std::string_view, 4> kOthers = {
    "PENSTOCK_LISTEN", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT"};

bool is_replaced(std::string_view name) {
  return std::find(kOurs.begin(), kOurs.end(), name) != kOurs.end() ||
         std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
}

}  // namespace

std::vector<std::string> rank_environment(const JobEnvironment& job) {
  std::vector<std::string> result;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!is_replaced(text.substr(0, text.find('=')))) result.emplace_back(text);
  }
  const std::array<std::string, kOurs.size()> values = {fmt::to_string(job.rank),
                                                        fmt::to_string(job.ranks),
                                                        fmt::to_string(job.local_rank),
                                                        fmt::to_string(job.local_ranks),
                                                        job.address,
                                                        fmt::to_string(job.port),
                                                        job.token,
                                                        fmt::to_string(job.restart),
                                                        fmt::to_string(job.servers),
                                                        fmt::to_string(job.failure_pipe)};
  for (size_t i = 0; i < kOurs.size(); ++i) {
    if (kOurs[i] != kFailurePipe || job.failure_pipe >= 0)
      result.push_back(fmt::format("{}={}", kOurs[i], values[i]));
  }
  return result;
}

}  // namespace penstock::launch
