#include "penstock/job/profile_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "penstock/profile/mean.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::job {

JobProfile combined(const std::vector<std::optional<profile::Profile>>& profiles,
                    const std::vector<int>& hosts) {
  std::vector<profile::Profile> measured;
  std::vector<std::vector<profile::Profile>> of_host;
  for (size_t r = 0; r < profiles.size(); ++r) {
    const auto host = static_cast<size_t>(hosts[r]);
    of_host.resize(std::max(of_host.size(), host + 1));
    if (!profiles[r]) continue;
    measured.push_back(*profiles[r]);
    of_host[host].push_back(*profiles[r]);
  }
  JobProfile result{.profile = profile::mean_of(measured),
                    .speed_of_host = {},
                    .measured = static_cast<int>(measured.size())};
  for (const auto& own : of_host) {
    result.speed_of_host.push_back(
        own.empty() ? 1 : profile::speed_of(profile::mean_of(own), result.profile));
  }
  return result;
}

JobProfile measure_together(Job& job, int most_per_host,
                            const std::function<profile::Profile()>& measure) {
  std::vector<int> hosts = job.hosts();
  hosts.resize(hosts.size() - static_cast<size_t>(job.servers()));
  const auto own = static_cast<size_t>(job.rank());
  const bool measures = own < hosts.size() && std::count(hosts.begin(), hosts.begin() + job.rank(),
                                                         hosts[own]) < most_per_host;
  const std::vector<std::string> texts =
      job.together([&] { return measures ? profile::to_json(measure()) : std::string(); });
  std::vector<std::optional<profile::Profile>> profiles(hosts.size());
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (!texts[r].empty())
      profiles[r] = profile::parse_profile(texts[r], fmt::format("the profile of rank {}", r));
  }
  return combined(profiles, hosts);
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
