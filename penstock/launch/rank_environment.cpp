#include "penstock/launch/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace penstock::launch {

namespace {

constexpr std::array<std::string_view, 9> kOurs = {
    "RANK",        "WORLD_SIZE",         "LOCAL_RANK",       "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "PENSTOCK_JOB_TOKEN", "PENSTOCK_RESTART", "PENSTOCK_SERVERS"};
// They would change what the ranks take from ours.
constexpr std::array<std::string_view, 4> kOthers = {
    "PENSTOCK_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT"};

bool is_replaced(std::string_view name) {
  return std::find(kOurs.begin(), kOurs.end(), name) != kOurs.end() ||
         std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
}

}  // namespace

std::vector<std::string> rank_environment(int rank, int ranks, const std::string& address, int port,
                                          const std::string& token, int restart, int servers) {
  std::vector<std::string> result;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!is_replaced(text.substr(0, text.find('=')))) result.emplace_back(text);
  }
  const std::array<std::string, kOurs.size()> values = {fmt::to_string(rank),
                                                        fmt::to_string(ranks),
                                                        fmt::to_string(rank),
                                                        fmt::to_string(ranks),
                                                        address,
                                                        fmt::to_string(port),
                                                        token,
                                                        fmt::to_string(restart),
                                                        fmt::to_string(servers)};
  for (size_t i = 0; i < kOurs.size(); ++i)
    result.push_back(fmt::format("{}={}", kOurs[i], values[i]));
  return result;
}

}  // namespace penstock::launch
