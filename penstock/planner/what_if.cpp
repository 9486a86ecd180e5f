#include "penstock/planner/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "penstock/plan/sum_wait.h"
#include "penstock/planner/time_limit.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

namespace {

using cluster::Cluster;
using cluster::Level;

struct Change {
  std::string name;
  /// Only when it is not the one asked about: profiles can be large.
  std::optional<profile::Profile> profile;
  Cluster cluster;
  PlanOptions options;
};

class Changes {
 public:
  Changes(const profile::Profile& profile, const Cluster& cluster, const PlanOptions& options,
          const plan::Plan& plan)
      : profile_(profile), cluster_(cluster), options_(options), plan_(plan) {
    options_.compare = false;
  }

  std::vector<Change> all() {
    add_workers();
    add_links();
    add_memory();
    add_speed();
    return std::move(changes_);
  }

 private:
  Change& add(std::string name) {
    return changes_.emplace_back(Change{std::move(name), std::nullopt, cluster_, options_});
  }

  std::string level_name(size_t level) const {
    const std::string& name = cluster_.levels[level].name;
    return name.empty() ? fmt::format("level {}", level + 1) : name.substr(0, 32);
  }

  // Levels that join nothing are no place to add to.
  size_t outermost() const {
    size_t level = cluster_.levels.size() - 1;
    while (level > 0 && cluster_.levels[level].count == 1) --level;
    return level;
  }

  void add_count(size_t level, int by, std::string name) {
    const int64_t count = int64_t{cluster_.levels[level].count} + by;
    if (count < 1 || count > INT32_MAX) return;
    Change& change = add(std::move(name));
    change.cluster.levels[level].count = static_cast<int>(count);
    // Workers of named groups that are gone take their groups with them.
    const int workers = change.cluster.num_workers();
    std::erase_if(change.cluster.groups,
                  [&](const cluster::DeviceGroup& group) { return group.first >= workers; });
    for (cluster::DeviceGroup& group : change.cluster.groups)
      group.count = std::min(group.count, workers - group.first);
  }

  // A machine's devices are spread evenly over its switches, so that the counts of levels inside it
  // change by more than one.
  int smallest_change(size_t level) const {
    const auto inside = static_cast<size_t>(cluster_.machine_level());
    if (!cluster_.machine || level >= inside) return 1;
    int64_t others = 1;  // what one more unit brings to a machine
    for (size_t l = 0; l < inside; ++l) {
      if (l != level) others *= cluster_.levels[l].count;
    }
    const int64_t switches = cluster_.machine->switches;
    return static_cast<int>(switches / std::gcd(switches, others));
  }

  void add_more_and_fewer(size_t level, const std::string& unit, const std::string& where) {
    const int by = smallest_change(level);
    const std::string number = by == 1 ? "one" : fmt::to_string(by);
    const std::string units = by == 1 ? unit : unit + "s";
    add_count(level, +by, fmt::format("{} more {}{}", number, units, where));
    add_count(level, -by, fmt::format("{} {} fewer{}", number, units, where));
  }

  void add_workers() {
    const size_t outer = outermost();
    if (outer == 0) return add_more_and_fewer(0, "worker", "");
    add_more_and_fewer(outer, level_name(outer - 1), "");
    // Other counts further in would renumber the workers that groups name.
    if (!cluster_.groups.empty()) return;
    add_more_and_fewer(0, "worker", fmt::format(" in each {}", level_name(0)));
  }

  // The links inside a machine are described twice: as a level, and one by one.
  void double_bandwidth(Cluster& cluster, size_t level) const {
    const auto twice = [](int64_t& bandwidth) { bandwidth = saturating_mul(bandwidth, 2); };
    twice(cluster.levels[level].bandwidth_bytes_per_s);
    if (!cluster.machine || static_cast<int>(level) + 1 != cluster.machine_level()) return;
    twice(cluster.machine->device_bytes_per_s);
    twice(cluster.machine->switch_bytes_per_s);
    twice(cluster.machine->cross_bytes_per_s);
    twice(cluster.machine->nvlink_bytes_per_s);
  }

  void add_links() {
    for (size_t level = 0; level < cluster_.levels.size(); ++level) {
      if (cluster_.levels[level].count == 1) continue;
      const std::string where =
          cluster_.levels.size() == 1 ? "" : fmt::format(" of level {}", level_name(level));
      double_bandwidth(add("twice the bandwidth" + where).cluster, level);
    }
    const auto has_latency = [](const Level& level) {
      return level.count > 1 && level.latency_ns > 1;
    };
    if (std::none_of(cluster_.levels.begin(), cluster_.levels.end(), has_latency)) return;
    for (Level& level : add("half the latency").cluster.levels) level.latency_ns /= 2;
  }

  void add_memory() {
    int64_t used = 0;
    for (const plan::Stage& stage : plan_.stages) used = std::max(used, stage.memory_bytes);
    bool limited = cluster_.device.memory_bytes > 0;
    for (const cluster::DeviceGroup& group : cluster_.groups)
      limited = limited || group.device.memory_bytes > 0;
    if (options_.memory_limit_bytes) {
      scale_limit("half the memory", 1);
      scale_limit("twice the memory", 4);
    } else if (limited) {
      scale_devices("half the memory", 1);
      scale_devices("twice the memory", 4);
    } else if (used > 1) {
      add(fmt::format("half the memory it uses ({})", format_bytes(used / 2)))
          .options.memory_limit_bytes = used / 2;
    }
  }

  static int64_t halves(int64_t bytes, int count) {
    return std::max<int64_t>(1, saturating_mul(bytes, count) / 2);
  }

  void scale_limit(std::string_view name, int halves_of) {
    const int64_t limit = halves(*options_.memory_limit_bytes, halves_of);
    add(fmt::format("{} ({} per worker)", name, format_bytes(limit))).options.memory_limit_bytes =
        limit;
  }

  void scale_devices(std::string_view name, int halves_of) {
    const auto scaled = [&](int64_t bytes) { return bytes > 0 ? halves(bytes, halves_of) : 0; };
    Change& change = add(cluster_.groups.empty()
                             ? fmt::format("{} ({} per worker)", name,
                                           format_bytes(scaled(cluster_.device.memory_bytes)))
                             : std::string(name));
    change.cluster.device.memory_bytes = scaled(change.cluster.device.memory_bytes);
    for (cluster::DeviceGroup& group : change.cluster.groups)
      group.device.memory_bytes = scaled(group.device.memory_bytes);
  }

  void add_speed() {
    Cluster& faster = add("every worker twice as fast").cluster;
    faster.device.speed *= 2;
    for (cluster::DeviceGroup& group : faster.groups) group.device.speed *= 2;
    if (plan_.stages.size() < 2) return;
    const size_t slowest = slowest_stage();
    const std::vector<std::string>& names = plan_.stages[slowest].layers;
    const std::unordered_set<std::string_view> layers(names.begin(), names.end());
    profile::Profile& profile =
        add(fmt::format("the layers of stage {} twice as fast", slowest)).profile.emplace(profile_);
    for (size_t l = 0; l < profile.costs.size(); ++l) {
      if (!layers.contains(profile.graph.layers()[l].name)) continue;
      profile.costs[l].forward_ns /= 2;
      profile.costs[l].backward_ns /= 2;
      profile.costs[l].backward_weight_ns /= 2;
    }
  }

  size_t slowest_stage() const {
    const auto time = [&](const plan::Stage& stage) {
      const int64_t rounds =
          ceil_div(std::max<int64_t>(plan_.micro_batches, 1), std::max(stage.replicas, 1));
      return static_cast<double>(rounds) * static_cast<double>(stage.work_ns()) +
             static_cast<double>(sum_wait_ns(plan_, stage)) +
             static_cast<double>(sum_processor_ns(stage)) + static_cast<double>(stage.step_ns);
    };
    const auto slowest = std::max_element(
        plan_.stages.begin(), plan_.stages.end(),
        [&](const plan::Stage& a, const plan::Stage& b) { return time(a) < time(b); });
    return static_cast<size_t>(slowest - plan_.stages.begin());
  }

  const profile::Profile& profile_;
  const Cluster& cluster_;
  PlanOptions options_;
  const plan::Plan& plan_;
  std::vector<Change> changes_;
};

plan::WhatIfResult answer(const Change& change, const profile::Profile& profile,
                          const plan::Plan& plan) {
  plan::WhatIfResult answer;
  answer.change = change.name;
  PlanResult result;
  try {
    result = make_plan(change.profile ? *change.profile : profile, change.cluster, change.options);
    // the change itself is not possible: too many workers, a 2bw step that no longer fits
  } catch (const ConfigError& error) {
    result.reason = error.what();
  }
  answer.feasible = result.plan.has_value();
  answer.reason = result.reason;
  if (!result.plan) return answer;
  answer.strategy = result.plan->strategy;
  answer.config = result.plan->config();
  answer.throughput_samples_per_s = result.plan->prediction.throughput_samples_per_s;
  for (const plan::Stage& stage : result.plan->stages)
    answer.memory_bytes = std::max(answer.memory_bytes, stage.memory_bytes);
  if (plan.prediction.throughput_samples_per_s > 0)
    answer.speedup = answer.throughput_samples_per_s / plan.prediction.throughput_samples_per_s;
  return answer;
}

}  // namespace

std::vector<plan::WhatIfResult> what_if(const profile::Profile& profile, const Cluster& cluster,
                                        const PlanOptions& options, const plan::Plan& plan,
                                        const std::function<void(int done, int total)>& progress) {
  cluster::validate(cluster);
  profile::validate(profile);
  std::vector<Change> changes = Changes(profile, cluster, options, plan).all();
  std::vector<plan::WhatIfResult> answers;
  // All changes together may take as long as one plan.
  const TimeLimit time(options.time_limit);
  for (Change& change : changes) {
    const auto left = static_cast<int64_t>(changes.size() - answers.size());
    if (time.exists())
      change.options.time_limit = std::max(time.left() / left, std::chrono::nanoseconds(1));
    answers.push_back(answer(change, profile, plan));
    if (progress) progress(static_cast<int>(answers.size()), static_cast<int>(changes.size()));
  }
  return answers;
}

}  // namespace penstock::planner
