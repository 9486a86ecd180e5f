#include "penstock/profile/over_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::profile {

namespace {

/// The mean of get(profile) by share.
template <class Get>
double mean_by_share(const std::vector<Profile>& profiles, const std::vector<LengthGroup>& lengths,
                     Get get) {
  double sum = 0;
  for (size_t i = 0; i < profiles.size(); ++i) sum += lengths[i].share * get(profiles[i]);
  return sum;
}

template <class Get>
int64_t whole_mean(const std::vector<Profile>& profiles, const std::vector<LengthGroup>& lengths,
                   Get get) {
  return static_cast<int64_t>(mean_by_share(
      profiles, lengths, [&](const Profile& p) { return static_cast<double>(get(p)); }));
}

/// What is rarer says nothing of usual passes, and was measured for its memory.
constexpr double kRare = 0.05;

PassTimes pass_of(const std::vector<Profile>& profiles, const std::vector<LengthGroup>& lengths) {
  std::vector<std::pair<double, PassTimes>> usual;
  double shares = 0;
  for (size_t i = 0; i < profiles.size(); ++i) {
    if (lengths[i].share < kRare) continue;
    if (profiles[i].pass.mean_ns == 0) return {};
    usual.emplace_back(lengths[i].share, profiles[i].pass);
    shares += lengths[i].share;
  }
  if (usual.empty()) return {};
  double mean = 0;
  for (const auto& [share, pass] : usual)
    mean += share / shares * static_cast<double>(pass.mean_ns);
  PassTimes all = usual.front().second;
  double variance = 0;
  double error = 0;
  for (const auto& [share, pass] : usual) {
    const auto own = static_cast<double>(pass.mean_ns);
    variance += share / shares * (std::pow(pass.spread * own, 2) + std::pow(own - mean, 2));
    error += std::pow(share / shares * pass.error * own, 2);
    all.stretches = std::min(all.stretches, pass.stretches);
  }
  all.mean_ns = static_cast<int64_t>(mean);
  all.spread = std::sqrt(variance) / mean;
  all.error = std::sqrt(error) / mean;
  return all;
}

void check_alike(const Profile& a, const Profile& b) {
  if (a.graph == b.graph && a.batch_size == b.batch_size && a.precision == b.precision) return;
  throw ConfigError(
      fmt::format("expected profiles of one model and micro-batch by length, found '{}' with {} "
                  "samples and '{}' with {}",
                  a.model, a.batch_size, b.model, b.batch_size));
}

}  // namespace

Profile over_lengths(const std::vector<Profile>& profiles,
                     const std::vector<LengthGroup>& lengths) {
  validate(lengths);
  if (profiles.empty() || profiles.size() != lengths.size()) {
    throw ConfigError(fmt::format("expected a profile for each of {} lengths, found {}",
                                  lengths.size(), profiles.size()));
  }
  Profile result = profiles.front();
  for (const Profile& profile : profiles) check_alike(result, profile);
  for (size_t l = 0; l < result.costs.size(); ++l) {
    LayerCost& cost = result.costs[l];
    for (const auto time :
         {&LayerCost::forward_ns, &LayerCost::backward_ns, &LayerCost::backward_weight_ns,
          &LayerCost::accumulate_ns, &LayerCost::step_ns, &LayerCost::forward_spread_ns,
          &LayerCost::backward_spread_ns, &LayerCost::loss_ns}) {
      cost.*time =
          whole_mean(profiles, lengths, [&](const Profile& p) { return p.costs[l].*time; });
    }
    for (size_t o = 0; o < cost.output_bytes.size(); ++o) {
      cost.output_bytes[o] = whole_mean(
          profiles, lengths, [&](const Profile& p) { return p.costs[l].output_bytes.at(o); });
    }
    // An LSTM's members meet at every place.
    for (const auto share : {&TensorShare::sums, &TensorShare::sum_bytes, &TensorShare::back_sums,
                             &TensorShare::back_sum_bytes}) {
      cost.team.*share =
          whole_mean(profiles, lengths, [&](const Profile& p) { return p.costs[l].team.*share; });
    }
    for (const auto bytes : {&LayerCost::stash_bytes, &LayerCost::working_bytes}) {
      for (const Profile& profile : profiles)
        cost.*bytes = std::max(cost.*bytes, profile.costs[l].*bytes);
    }
  }
  result.pass = pass_of(profiles, lengths);
  result.hand_over_ns =
      whole_mean(profiles, lengths, [](const Profile& p) { return p.hand_over_ns; });
  result.copy_bandwidth_bytes_per_s =
      whole_mean(profiles, lengths, [](const Profile& p) { return p.copy_bandwidth_bytes_per_s; });
  for (size_t i = 1; i < profiles.size(); ++i) {
    result.samples += profiles[i].samples;
    result.device_graphs = result.device_graphs && profiles[i].device_graphs;
  }
  result.lengths = lengths;
  return result;
}

}  // namespace penstock::profile
