#include "penstock/plan/gradient_sync.h"

#include <fmt/format.h>

#include <string>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::plan {

std::string_view to_string(GradientSync sync) {
  switch (sync) {
    case GradientSync::Ordered:
      return "ordered";
    case GradientSync::Ring:
      return "ring";
    case GradientSync::ParameterServer:
      return "parameter-server";
    case GradientSync::Summation:
      return "summation";
    case GradientSync::Asynchronous:
      return "asynchronous";
    case GradientSync::Hierarchical:
      return "hierarchical";
  }
  return "ordered";
}

namespace {

std::optional<GradientSync> find_sync(std::string_view name) {
  for (const GradientSync sync : kGradientSyncs) {
    if (name == to_string(sync)) return sync;
  }
  return std::nullopt;
}

std::string names() {
  std::string text;
  for (const GradientSync sync : kGradientSyncs)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(sync));
  return text;
}

}  // namespace

GradientSync parse_gradient_sync(std::string_view name) {
  if (const auto found = find_sync(name)) return *found;
  throw ConfigError(fmt::format("unknown gradient synchronisation '{}'; expected one of {}",
                                name.substr(0, 40), names()));
}

std::optional<GradientSync> parse_sync_choice(std::string_view name) {
  if (name == "auto") return std::nullopt;
  if (const auto found = find_sync(name)) return found;
  throw ConfigError(fmt::format("unknown gradient synchronisation '{}', expected one of auto, {}",
                                name.substr(0, 40), names()));
}

SumShares sum_shares(GradientSync sync, int replicas, int servers, double server_speed) {
  if (replicas < 1 || servers < 0 || !(server_speed > 0)) {
    throw ConfigError(
        fmt::format("gradients cannot be shared out over {} replicas and {} servers of speed {}",
                    replicas, servers, server_speed));
  }
  const double n = replicas;
  const bool uses_servers =
      all_on_servers(sync) || sync == GradientSync::Summation || sync == GradientSync::Hierarchical;
  // Of one machine nothing has to leave it.
  const bool stays = sync == GradientSync::Hierarchical && replicas == 1;
  if (servers == 0 || !uses_servers || stays) return {.replica = 1 / n};
  const double k = servers * server_speed;
  if (all_on_servers(sync) || replicas == 1 || k >= n) return {.server = 1.0 / servers};
  const double all = n * n + k * (n - 2);
  return {.replica = (n - k) / all, .server = 2 * server_speed * (n - 1) / all};
}

std::vector<size_t> bucket_ends(const std::vector<int64_t>& weight_bytes) {
  std::vector<size_t> ends;
  int64_t bytes = 0;
  for (size_t l = 0; l < weight_bytes.size(); ++l) {
    if (weight_bytes[l] == 0) continue;
    // The bucket may have ended with an earlier layer, had this one not come.
    if (bytes > 0) ends.pop_back();
    ends.push_back(l + 1);
    bytes = saturating_add(bytes, weight_bytes[l]);
    if (bytes >= kBucketBytes) bytes = 0;
  }
  return ends;
}

}  // namespace penstock::plan
