// One profile of a model for all ranks of a job. The ranks of a host share the layers, so that none
// has to hold the whole model. All measure at the same time: as much shares caches, memory
// bandwidth and power as will in training, and hosts are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/job/job.h"
#include "penstock/profile/profile.h"
#include "penstock/profile/share.h"

namespace penstock::job {

struct JobProfile {
  profile::Profile profile;           ///< the mean of those that measured
  std::vector<double> speed_of_host;  ///< compared with the mean; 1 where nobody measured
  int measured = 1;                   ///< ranks
  int measured_layers = 0;            ///< Share::measured, of the host with the fewest
  bool is_kept = false;               ///< measured before, by all of them
};

/// Of what each rank that trains has measured, and of its host (from 0). Throws ConfigError when
/// nobody has, and as profile::join() for each host and profile::mean_of().
JobProfile combined(const std::vector<std::optional<profile::Share>>& shares,
                    const std::vector<int>& hosts);

/// Layers in a row, of about the same load each; `loads`, one per layer, are at least 0. Fewer
/// ranges than `parts` where there are fewer layers. O(layers).
std::vector<profile::LayerRange> split_layers(const std::vector<int64_t>& loads, int parts);

/// What was measured before, if it was.
using LookUp = std::function<std::optional<profile::Share>(profile::LayerRange)>;

/// Collective. On every host the first `most_per_host` ranks that train split the layers by their
/// loads (bytes). Where `look_up`, if there is one, has the shares of all of them, these are taken.
/// Otherwise all call `measure` with their own, at the same time; a rank without a layer measures
/// nothing. All ranks get the result.
JobProfile measure_together(Job& job, const std::vector<int64_t>& loads, int most_per_host,
                            const std::function<profile::Share(profile::LayerRange)>& measure,
                            const LookUp& look_up = {});

/// How fast each host is, for people: a line; empty for one host.
std::string speeds_text(const JobProfile& measured);

/// How many ranks of a host can measure at the same time without sharing cores.
int ranks_that_measure(int concurrency, int threads);

}  // namespace penstock::job
