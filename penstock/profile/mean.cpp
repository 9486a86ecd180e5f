#include "penstock/profile/mean.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "penstock/util/error.h"

namespace penstock::profile {

namespace {

bool are_alike(const Profile& a, const Profile& b) {
  if (!(a.graph == b.graph) || a.batch_size != b.batch_size || a.precision != b.precision ||
      !(a.lengths == b.lengths) || a.costs.size() != b.costs.size())
    return false;
  return std::equal(a.costs.begin(), a.costs.end(), b.costs.begin(),
                    [](const LayerCost& x, const LayerCost& y) {
                      return x.output_bytes == y.output_bytes && x.weight_bytes == y.weight_bytes &&
                             x.constant_bytes == y.constant_bytes && x.tied_bytes == y.tied_bytes;
                    });
}

/// Of get(profile), rounded down: what is at most another time stays so.
template <class Get>
int64_t mean(const std::vector<Profile>& profiles, Get get) {
  __int128 sum = 0;
  for (const Profile& profile : profiles) sum += get(profile);
  return static_cast<int64_t>(sum / static_cast<int64_t>(profiles.size()));
}

std::string devices_of(const std::vector<Profile>& profiles) {
  std::vector<std::string> devices;
  for (const Profile& profile : profiles) {
    if (std::find(devices.begin(), devices.end(), profile.device) == devices.end())
      devices.push_back(profile.device);
  }
  return fmt::format("{}", fmt::join(devices, " and "));
}

}  // namespace

Profile mean_of(const std::vector<Profile>& profiles) {
  if (profiles.empty()) throw ConfigError("expected at least one profile, found none");
  Profile result = profiles.front();
  for (const Profile& profile : profiles) {
    if (are_alike(profile, result)) continue;
    throw ConfigError(
        fmt::format("expected profiles of the same layers, found '{}' and '{}' that differ in "
                    "layers, sizes or micro-batches",
                    result.model, profile.model));
  }
  result.device = devices_of(profiles);
  result.device_graphs = std::all_of(profiles.begin(), profiles.end(),
                                     [](const Profile& profile) { return profile.device_graphs; });
  result.copy_bandwidth_bytes_per_s =
      mean(profiles, [](const Profile& p) { return p.copy_bandwidth_bytes_per_s; });
  for (size_t l = 0; l < result.costs.size(); ++l) {
    for (const auto time :
         {&LayerCost::forward_ns, &LayerCost::backward_ns, &LayerCost::backward_weight_ns,
          &LayerCost::accumulate_ns, &LayerCost::step_ns, &LayerCost::forward_spread_ns,
          &LayerCost::backward_spread_ns, &LayerCost::loss_ns}) {
      result.costs[l].*time = mean(profiles, [&](const Profile& p) { return p.costs[l].*time; });
    }
    for (const auto bytes : {&LayerCost::stash_bytes, &LayerCost::working_bytes}) {
      for (const Profile& profile : profiles)
        result.costs[l].*bytes = std::max(result.costs[l].*bytes, profile.costs[l].*bytes);
    }
  }
  // What is not known of one of them is not known of all.
  const bool is_known = std::all_of(profiles.begin(), profiles.end(),
                                    [](const Profile& p) { return p.pass.mean_ns > 0; });
  result.pass.mean_ns = mean(profiles, [](const Profile& p) { return p.pass.mean_ns; });
  result.hand_over_ns = mean(profiles, [](const Profile& p) { return p.hand_over_ns; });
  for (const Profile& profile : profiles) {
    // Measured at the same time on machines that may share what makes them slow: not independent.
    result.pass.spread = std::max(result.pass.spread, profile.pass.spread);
    result.pass.error = std::max(result.pass.error, profile.pass.error);
    result.pass.stretches = std::min(result.pass.stretches, profile.pass.stretches);
  }
  if (!is_known) result.pass = {};
  for (const Profile& profile : profiles)
    result.samples = std::min(result.samples, profile.samples);
  return result;
}

double speed_of(const Profile& profile, const Profile& reference) {
  const auto own = static_cast<double>(total_compute_ns(profile));
  const auto other = static_cast<double>(total_compute_ns(reference));
  return own > 0 && other > 0 ? other / own : 1;
}

}  // namespace penstock::profile
