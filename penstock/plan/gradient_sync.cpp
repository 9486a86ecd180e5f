#include "penstock/plan/gradient_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

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
    case GradientSync::DiLoCo:
      return "diloco";
    case GradientSync::PowerSgd:
      return "powersgd";
  }
  return "ordered";
}

std::string to_string(const SyncMethod& method) {
  if (method.sync == GradientSync::DiLoCo)
    return fmt::format("{}:{}", to_string(method.sync), method.every);
  if (method.sync == GradientSync::PowerSgd)
    return fmt::format("{}:{}", to_string(method.sync), method.rank);
  return std::string(to_string(method.sync));
}

namespace {

/// A whole number from 1 to `most`; nothing where the text is none.
std::optional<int64_t> parse_count(std::string_view text, int64_t most) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > most)
    return std::nullopt;
  return count;
}

/// "diloco:500" in parts.
SyncMethod parse_rounds(std::string_view name, std::string_view steps) {
  if (const auto every = parse_count(steps, kMostStepsOfRound))
    return {GradientSync::DiLoCo, *every};
  throw ConfigError(
      fmt::format("gradient synchronisation '{}': expected the steps between two sums, 1 to {}, "
                  "such as diloco:100",
                  name.substr(0, 40), kMostStepsOfRound));
}

/// "powersgd:4" in parts.
SyncMethod parse_factors(std::string_view name, std::string_view text) {
  if (const auto rank = parse_count(text, kMostSyncRank)) return {GradientSync::PowerSgd, 1, *rank};
  throw ConfigError(
      fmt::format("gradient synchronisation '{}': expected the rank of the sums, 1 to {}, such as "
                  "powersgd:4",
                  name.substr(0, 40), kMostSyncRank));
}

std::optional<SyncMethod> find_sync(std::string_view name) {
  const std::string_view word = name.substr(0, name.find(':'));
  for (const GradientSync sync : kGradientSyncs) {
    if (word != to_string(sync)) continue;
    const std::string_view rest = name.substr(std::min(name.size(), word.size() + 1));
    if (sync == GradientSync::DiLoCo) return parse_rounds(name, rest);
    if (sync == GradientSync::PowerSgd) return parse_factors(name, rest);
    if (word == name) return sync;
  }
  return std::nullopt;
}

std::string names() {
  std::string text;
  for (const GradientSync sync : kGradientSyncs)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", to_string(sync),
                        sync == GradientSync::DiLoCo     ? ":H"
                        : sync == GradientSync::PowerSgd ? ":R"
                                                         : "");
  return text;
}

}  // namespace

SyncMethod parse_gradient_sync(std::string_view name) {
  if (const auto found = find_sync(name)) return *found;
  throw ConfigError(fmt::format("unknown gradient synchronisation '{}'; expected one of {}",
                                name.substr(0, 40), names()));
}

std::optional<SyncMethod> parse_sync_choice(std::string_view name) {
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
