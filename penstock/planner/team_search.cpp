#include "penstock/planner/team_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/planner/families/families.h"
#include "penstock/util/error.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

using plan::Plan;
using plan::Stage;

namespace {

/// So many changes of a plan are tried at most.
constexpr int kMostTrials = 32;
/// Plans slower than this against the fastest are not gone on from.
constexpr double kWorthwhile = 0.75;

double rate(const Plan& plan) { return plan.prediction.throughput_samples_per_s; }

bool beats(const Plan& plan, const Plan& than) { return rate(plan) > kFaster * rate(than); }

/// "7-1" of teams as workers have it.
std::string config_of_teams(const std::string& config, int team) {
  if (team == 1 || config.empty()) return config;
  if (config.find_first_not_of("0123456789-") != std::string::npos)
    return fmt::format("{}, teams of {}", config, team);
  std::string text;
  for (const char c : config) text += c == '-' ? fmt::format("t{}-", team) : std::string(1, c);
  return fmt::format("{}t{}", text, team);
}

/// One size of teams for all stages.
class UniformTeams {
  /// Of the time; the rest is for places that are shared out, where nothing else fits.
  static constexpr double kWithWholePlaces = 0.8;

 public:
  UniformTeams(const profile::Profile& profile, const cluster::Cluster& cluster,
               const PlanOptions& options, const WholeSearch& search)
      : profile_(profile), cluster_(cluster), options_(options), search_(search) {
    options_.tensor = 1;
  }

  PlanResult best(int team, TimeLimit time) {
    const bool can_share = team > 1 && has_places(profile_);
    const bool always = team > 1 && options_.sequence == Choice::Always;
    const bool waits = can_share && options_.sequence == Choice::Auto;
    PlanResult result = best(team, always, waits ? time.share(kWithWholePlaces) : time);
    if (result.plan || !waits || time.is_over()) return result;
    return best(team, /*sequence=*/true, time);
  }

 private:
  PlanResult best(int team, bool sequence, TimeLimit time) {
    const std::optional<TeamWorld> world = team_world(profile_, cluster_, team, sequence);
    if (!world) return {std::nullopt, fmt::format("teams of {} do not fit the cluster", team)};
    PlanResult result = search_(world->profile, world->cluster, options_, time);
    if (!result.plan || team == 1) return result;
    result.plan = on_workers(*result.plan, team, sequence);
    return result;
  }

  Plan on_workers(const Plan& of_teams, int team, bool sequence) {
    Plan plan = of_teams;
    plan.cluster = cluster_;
    for (Stage& stage : plan.stages) {
      stage.tensor = team;
      stage.sequence = sequence;
      if (stage.first_worker >= 0) stage.first_worker *= team;
    }
    const PlanOptions options = options_of(plan, options_);
    TeamPricer pricer(profile_, cluster_, options);
    Plan priced = pricer.price(split_of(plan));
    priced.explanation = std::move(plan.explanation);
    for (plan::Alternative& row : priced.explanation.alternatives)
      row.config = config_of_teams(row.config, team);
    priced.explanation.notes.insert(
        priced.explanation.notes.begin(),
        fmt::format("Where these notes count workers or name one, they mean teams of {} workers.",
                    team));
    return priced;
  }

  const profile::Profile& profile_;
  const cluster::Cluster& cluster_;
  PlanOptions options_;
  const WholeSearch& search_;
};

/// Goes on from a plan, a stage at a time: another team on the same workers, a team on those of two
/// stages, or layers given to the neighbour. Takes what is faster.
class MixedTeams {
 public:
  MixedTeams(const profile::Profile& profile, const cluster::Cluster& cluster,
             const PlanOptions& options, Plan start, TimeLimit time)
      : own_step_(options.micro_batches.has_value()),
        own_(options_of(start, options)),
        pricer_(profile, cluster, own_),
        sizes_(possible_teams(cluster)),
        best_(std::move(start)),
        sequence_(options.sequence == Choice::Always ||
                  std::any_of(best_.stages.begin(), best_.stages.end(),
                              [](const Stage& stage) { return stage.sequence; })),
        time_(time) {}

  Plan improved() {
    if (best_.shares_workers()) return std::move(best_);
    for (bool changed = true; changed && trials_ < kMostTrials && !time_.is_over();) {
      changed = false;
      for (size_t s = 0; s < best_.stages.size(); ++s) changed = try_teams(s) || changed;
      for (size_t s = 0; s + 1 < best_.stages.size(); ++s) changed = try_merge(s) || changed;
      for (size_t s = 0; s + 1 < best_.stages.size(); ++s) {
        while (try_layers(s, s + 1) || try_layers(s + 1, s)) changed = true;
      }
    }
    return std::move(best_);
  }

 private:
  bool try_teams(size_t s) {
    bool changed = false;
    for (const int team : sizes_) {
      const Stage& stage = best_.stages[s];
      const int workers = stage.replicas * stage.tensor;
      const int replicas = workers / team;
      if (team == stage.tensor || workers % team != 0 || stage.first_worker % team != 0 ||
          !suits_step(replicas))
        continue;
      TeamSplit split = split_of(best_);
      split.stages[s].tensor = team;
      split.stages[s].sequence = team > 1 && sequence_;
      split.stages[s].replicas = replicas;
      changed = take_with_any_cuts(split) || changed;
    }
    return changed;
  }

  // The user's own step may be no multiple of the replicas.
  bool suits_step(int replicas) const { return own_step_ || best_.micro_batches % replicas == 0; }

  // A stage and the next one become one, whose teams have the workers of both.
  bool try_merge(size_t s) {
    if (best_.stages.size() <= 2) return false;
    const Stage& first = best_.stages[s];
    const Stage& second = best_.stages[s + 1];
    const int workers = first.replicas * first.tensor + second.replicas * second.tensor;
    if (first.first_worker + first.replicas * first.tensor != second.first_worker) return false;
    for (const int team : sizes_) {
      if (team == 1 || workers % team != 0 || first.first_worker % team != 0 ||
          !suits_step(workers / team))
        continue;
      TeamSplit split = split_of(best_);
      Stage& both = split.stages[s];
      both.layers.insert(both.layers.end(), second.layers.begin(), second.layers.end());
      both.tensor = team;
      both.sequence = sequence_;
      both.replicas = workers / team;
      split.stages.erase(split.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1);
      if (take_with_any_cuts(std::move(split))) return true;
    }
    return false;
  }

  // As it is, and cut so that the stages compute as long as each other.
  bool take_with_any_cuts(TeamSplit split) {
    const bool taken = take_if_faster(split);
    return (balance(split) && take_if_faster(split)) || taken;
  }

  // Layers in their order, cut so that the slowest stage computes for the least time. False:
  // nothing has changed, or there are too many layers.
  bool balance(TeamSplit& split) {
    constexpr size_t kMostLayers = 512;
    std::vector<std::string> names;
    for (const graph::LayerNode& layer : pricer_.context(1).profile.graph.layers())
      names.push_back(layer.name);
    if (names.size() > kMostLayers) return false;
    const std::vector<size_t> ends = balanced_ends(split.stages, names.size());
    bool changed = false;
    size_t next = 0;
    for (size_t s = 0; s < ends.size(); ++s) {
      std::vector<std::string> layers(names.begin() + static_cast<std::ptrdiff_t>(next),
                                      names.begin() + static_cast<std::ptrdiff_t>(ends[s]));
      next = ends[s];
      changed = changed || layers != split.stages[s].layers;
      split.stages[s].layers = std::move(layers);
    }
    return changed;
  }

  // Behind the last layer of each stage. O(stages * layers^2).
  std::vector<size_t> balanced_ends(const std::vector<Stage>& stages, size_t num_layers) {
    const double none = std::numeric_limits<double>::infinity();
    // By stage and end: the time of the slowest stage so far, and where the last one begins.
    std::vector<std::vector<double>> slowest(stages.size(),
                                             std::vector<double>(num_layers + 1, none));
    std::vector<std::vector<size_t>> begins(stages.size(), std::vector<size_t>(num_layers + 1, 0));
    for (size_t s = 0; s < stages.size(); ++s) {
      const std::vector<double> until = times_until(stages[s]);
      for (size_t end = s + 1; end <= num_layers; ++end) {
        for (size_t begin = s; begin < (s == 0 ? 1 : end); ++begin) {
          const double before = s == 0 ? 0 : slowest[s - 1][begin];
          const double time = std::max(before, until[end] - until[begin]);
          if (time >= slowest[s][end]) continue;
          slowest[s][end] = time;
          begins[s][end] = begin;
        }
      }
    }
    std::vector<size_t> ends(stages.size(), num_layers);
    for (size_t s = stages.size() - 1; s > 0; --s) ends[s - 1] = begins[s][ends[s]];
    return ends;
  }

  // What one micro-batch takes the stage's workers in turn, of all layers before each.
  std::vector<double> times_until(const Stage& stage) {
    std::vector<double> until{0};
    for (const PlannedLayer& layer : pricer_.context(stage.tensor, stage.sequence).layers)
      until.push_back(until.back() + static_cast<double>(layer.compute_ns) / stage.replicas);
    return until;
  }

  // The last layers of one stage become the first of the next, or the other way round.
  bool try_layers(size_t from, size_t to) {
    constexpr size_t kMostMoved = 3;
    bool changed = false;
    for (size_t count = 1; count <= kMostMoved; ++count) {
      TeamSplit split = split_of(best_);
      std::vector<std::string>& giving = split.stages[from].layers;
      std::vector<std::string>& taking = split.stages[to].layers;
      if (giving.size() <= count) break;
      const auto some = static_cast<std::ptrdiff_t>(count);
      if (from < to) {
        taking.insert(taking.begin(), giving.end() - some, giving.end());
        giving.erase(giving.end() - some, giving.end());
      } else {
        taking.insert(taking.end(), giving.begin(), giving.begin() + some);
        giving.erase(giving.begin(), giving.begin() + some);
      }
      changed = take_if_faster(split) || changed;
    }
    return changed;
  }

  bool take_if_faster(const TeamSplit& split) {
    if (++trials_ > kMostTrials || time_.is_over()) return false;
    try {
      Plan plan = pricer_.price(split);
      if (!beats(plan, best_) || !pricer_.fits(plan)) return false;
      plan.explanation = std::move(best_.explanation);
      best_ = std::move(plan);
      return true;
    } catch (const ConfigError&) {
      return false;  // no legal cut, or not of this kind
    }
  }

  bool own_step_;
  PlanOptions own_;
  TeamPricer pricer_;
  std::vector<int> sizes_;
  Plan best_;
  bool sequence_;  ///< teams share out places
  TimeLimit time_;
  int trials_ = 0;
};

void check_teams(const profile::Profile& profile, const cluster::Cluster& cluster, int team) {
  if (team < 1)
    throw ConfigError(fmt::format("expected teams of at least 1 member, found {}", team));
  if (team == 1) return;
  if (!can_be_shared_out(profile)) {
    throw ConfigError(
        "the profile says of no layer what the members of a team can share out: expected one of a "
        "model whose layers have such weights (key team), or teams of 1");
  }
  if (team_world(profile, cluster, team)) return;
  throw ConfigError(fmt::format(
      "teams of {} members do not fit the cluster: expected one of {}, or whole units, all of one "
      "device",
      team, fmt::join(possible_teams(cluster), ", ")));
}

/// Goes on from each plan that is not much slower than the best one.
void take_mixed(const profile::Profile& profile, const cluster::Cluster& cluster,
                const PlanOptions& options, std::vector<Plan> starts, TimeLimit time, Plan& best) {
  const double least = kWorthwhile * rate(best);
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Plan& a, const Plan& b) { return rate(a) > rate(b); });
  for (Plan& start : starts) {
    if (rate(start) < least) continue;
    const std::string before = start.config();
    const double before_rate = rate(start);
    Plan plan = MixedTeams(profile, cluster, options, std::move(start), time).improved();
    if (!beats(plan, best)) continue;
    plan.explanation.notes.insert(
        plan.explanation.notes.begin(),
        fmt::format(
            "Teams and cuts were chosen stage by stage, {:.2f}x as fast as {}, of which the "
            "following notes speak.",
            rate(plan) / before_rate, before));
    best = std::move(plan);
  }
}

std::string shared_note(const profile::Profile& profile) {
  const SharedOut shared = shared_out(profile);
  return fmt::format(
      "A team shares out {:.1f} % of the weights and {:.1f} % of the time of the model; each "
      "member "
      "has the rest whole.",
      100 * shared.weights, 100 * shared.time);
}

/// What a worker needs with the places of sequences shared out, and without.
std::optional<std::string> places_note(const profile::Profile& profile,
                                       const cluster::Cluster& cluster, const PlanOptions& options,
                                       const Plan& plan) {
  if (!has_places(profile)) {
    if (options.sequence != Choice::Always) return std::nullopt;
    return "By the profile no layer has places of sequences that members could share out: sequence "
           "parallelism saves nothing here.";
  }
  const auto most_bytes = [&](bool sequence) {
    TeamSplit split = split_of(plan);
    for (Stage& stage : split.stages) stage.sequence = sequence && stage.tensor > 1;
    TeamPricer pricer(profile, cluster, options_of(plan, options));
    int64_t bytes = 0;
    for (const Stage& stage : pricer.price(split).stages)
      bytes = std::max(bytes, stage.memory_bytes);
    return bytes;
  };
  const SharedStash shared = shared_stash(profile);
  return fmt::format(
      "Members that share out the places of sequences divide {:.1f} % of what operations save, "
      "{:.1f} % without: {} at most on a worker, {} without.",
      100 * shared.with, 100 * shared.without, format_bytes(most_bytes(true)),
      format_bytes(most_bytes(false)));
}

/// By size: what the best plan of teams of this size reaches.
using Reached = std::vector<std::pair<int, double>>;

std::string reached_note(const Reached& reached) {
  std::string text;
  for (const auto& [team, samples_per_s] : reached) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", team,
                        samples_per_s > 0 ? format_rate(samples_per_s) + " samples/s" : "no plan");
  }
  return fmt::format("Members of all teams, and what the best plan reaches: {}.", text);
}

}  // namespace

size_t smallest_of_fastest(const std::vector<double>& samples_per_s) {
  const double fastest = *std::max_element(samples_per_s.begin(), samples_per_s.end());
  size_t taken = samples_per_s.size() - 1;
  while (taken > 0 && fastest > kFaster * samples_per_s[taken]) --taken;
  return taken;
}

TeamSplit split_of(const Plan& plan) {
  return {.strategy = plan.strategy,
          .policy = plan.weights,
          .slack = plan.slack,
          .micro_batches = plan.micro_batches,
          .stages = plan.stages,
          .worker_of_replica = plan.worker_of_replica};
}

PlanOptions options_of(const Plan& plan, PlanOptions options) {
  options.strategy = plan.strategy;
  options.weights = plan.weights;
  options.compensation = plan.compensation;
  options.sync = plan.sync_method();
  options.gradient_precision = plan.gradient_precision;
  options.micro_batches = plan.micro_batches;
  options.optimizer_state_per_weight = plan.optimizer_state_per_weight;
  options.straight = false;
  options.chunks.reset();
  options.keep.reset();
  options.slack.reset();
  return options;
}

PlanResult plan_with_teams(const profile::Profile& profile, const cluster::Cluster& cluster,
                           const PlanOptions& options, const WholeSearch& search) {
  std::vector<int> sizes = possible_teams(cluster);
  if (options.tensor) {
    check_teams(profile, cluster, *options.tensor);
    sizes = {*options.tensor};
  } else if (!can_be_shared_out(profile)) {
    sizes = {1};
  }
  const TimeLimit time(options.time_limit);
  UniformTeams uniform(profile, cluster, options, search);
  std::vector<PlanResult> results;
  std::vector<double> rates;
  Reached reached;
  // Large teams make small worlds: what their searches leave of the time is for the others.
  std::reverse(sizes.begin(), sizes.end());
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (time.is_over() && std::any_of(rates.begin(), rates.end(), [](double r) { return r > 0; }))
      break;
    const auto left = static_cast<double>(sizes.size() - i);
    PlanResult result = uniform.best(sizes[i], time.share(1 / left));
    rates.push_back(result.plan ? rate(*result.plan) : 0);
    reached.insert(reached.begin(), {sizes[i], rates.back()});
    results.push_back(std::move(result));
  }
  std::vector<Plan> starts;
  for (const PlanResult& result : results) {
    if (result.plan) starts.push_back(*result.plan);
  }
  PlanResult best = std::move(results[smallest_of_fastest(rates)]);
  if (!best.plan) return best;
  if (!options.tensor && sizes.size() > 1)
    take_mixed(profile, cluster, options, std::move(starts), time, *best.plan);
  std::vector<std::string>& notes = best.plan->explanation.notes;
  if (sizes.size() > 1) notes.push_back(reached_note(reached));
  if (best.plan->teams().empty()) return best;
  notes.push_back(shared_note(profile));
  if (auto note = places_note(profile, cluster, options, *best.plan))
    notes.push_back(*std::move(note));
  return best;
}

}  // namespace penstock::planner
