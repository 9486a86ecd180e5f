#include "penstock/job/profile_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "penstock/profile/mean.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::job {

namespace {

constexpr const char* kNothingToDo = "-";

}  // namespace

JobProfile combined(const std::vector<std::optional<profile::Share>>& shares,
                    const std::vector<int>& hosts) {
  struct HostShares {
    std::vector<profile::Share> shares;
    std::vector<std::string> places;
  };
  std::vector<HostShares> of_host;
  int measured = 0;
  for (size_t r = 0; r < shares.size(); ++r) {
    const auto host = static_cast<size_t>(hosts[r]);
    of_host.resize(std::max(of_host.size(), host + 1));
    if (!shares[r]) continue;
    ++measured;
    of_host[host].shares.push_back(*shares[r]);
    of_host[host].places.push_back(fmt::format("rank {}", r));
  }
  std::vector<profile::Profile> profiles;
  std::vector<std::optional<size_t>> profile_of_host;
  int measured_layers = 0;
  for (HostShares& own : of_host) {
    profile_of_host.emplace_back();
    if (own.shares.empty()) continue;
    profile::Share host =
        profile::join(std::move(own.shares), std::move(own.places), profile::Devices::Any);
    measured_layers = profiles.empty() ? host.measured : std::min(measured_layers, host.measured);
    profile_of_host.back() = profiles.size();
    profiles.push_back(std::move(host.profile));
  }
  JobProfile result{.profile = profile::mean_of(profiles),
                    .speed_of_host = {},
                    .measured = measured,
                    .measured_layers = measured_layers};
  for (const std::optional<size_t>& own : profile_of_host)
    result.speed_of_host.push_back(own ? profile::speed_of(profiles[*own], result.profile) : 1);
  return result;
}

std::vector<profile::LayerRange> split_layers(const std::vector<int64_t>& loads, int parts) {
  const auto layers = static_cast<int32_t>(loads.size());
  // A layer without a load counts, too.
  double left = 0;
  for (const int64_t load : loads) left += static_cast<double>(load) + 1;
  std::vector<profile::LayerRange> ranges;
  int32_t next = 0;
  for (int32_t k = std::min(parts, layers); k > 0; --k) {
    const double target = left / k;
    profile::LayerRange range{LayerId{next}, LayerId{next}};
    double own = 0;
    while (true) {
      own += static_cast<double>(loads[static_cast<size_t>(next)]) + 1;
      range.last = LayerId{next++};
      if (layers - next < k || layers == next) break;
      const double half = (static_cast<double>(loads[static_cast<size_t>(next)]) + 1) / 2;
      if (k > 1 && own + half > target) break;
    }
    left -= own;
    ranges.push_back(range);
  }
  return ranges;
}

JobProfile measure_together(Job& job, const std::vector<int64_t>& loads, int most_per_host,
                            const std::function<profile::Share(profile::LayerRange)>& measure,
                            const LookUp& look_up) {
  std::vector<int> hosts = job.hosts();
  hosts.resize(hosts.size() - static_cast<size_t>(job.servers()));
  const auto own = static_cast<size_t>(job.rank());
  std::optional<profile::LayerRange> layers;
  if (own < hosts.size()) {
    const auto before = std::count(hosts.begin(), hosts.begin() + job.rank(), hosts[own]);
    const auto on_host = std::count(hosts.begin(), hosts.end(), hosts[own]);
    const std::vector<profile::LayerRange> ranges =
        split_layers(loads, static_cast<int>(std::min<int64_t>(on_host, most_per_host)));
    if (before < std::ssize(ranges)) layers = ranges[static_cast<size_t>(before)];
  }
  std::vector<std::string> texts = job.together([&]() -> std::string {
    if (!layers) return kNothingToDo;
    if (!look_up) return {};
    const std::optional<profile::Share> share = look_up(*layers);
    return share ? profile::to_json(*share) : std::string();
  });
  const bool are_kept = std::ranges::none_of(texts, &std::string::empty);
  if (!are_kept) {
    texts = job.together([&]() -> std::string {
      return layers ? profile::to_json(measure(*layers)) : kNothingToDo;
    });
  }
  std::vector<std::optional<profile::Share>> shares(hosts.size());
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (texts[r] != kNothingToDo)
      shares[r] = profile::parse_share(texts[r], fmt::format("the profile of rank {}", r));
  }
  JobProfile result = combined(shares, hosts);
  result.is_kept = are_kept;
  return result;
}

std::string speeds_text(const JobProfile& measured) {
  if (measured.speed_of_host.size() < 2) return {};
  std::string text = fmt::format("{} measured; speed compared with their mean:",
                                 plural(measured.measured, "rank"));
  for (size_t h = 0; h < measured.speed_of_host.size(); ++h)
    text += fmt::format("{} host {} {:.2f}", h == 0 ? "" : ",", h, measured.speed_of_host[h]);
  return text + '\n';
}

int ranks_that_measure(int concurrency, int threads) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / std::max(1, concurrency * threads));
}

}  // namespace penstock::job
