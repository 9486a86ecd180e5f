#include "penstock/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cfloat>
#include <climits>
#include <functional>
#include <unordered_map>
#include <utility>

#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::plan {

namespace {

void refuse_negative(std::string_view where, std::string_view key, int64_t value) {
  if (value < 0)
    throw ConfigError(fmt::format("{}: expected {} of at least 0, found {}", where, key, value));
}

void refuse_below_one(std::string_view where, std::string_view key, int64_t value) {
  if (value < 1)
    throw ConfigError(fmt::format("{}: expected {} of at least 1, found {}", where, key, value));
}

void refuse_bad_amount(std::string_view where, std::string_view key, double value,
                       double most = DBL_MAX) {
  if (value >= 0 && value <= most) return;
  const std::string range = most == DBL_MAX ? "of at least 0" : fmt::format("from 0 to {}", most);
  throw ConfigError(fmt::format("{}: expected {} {}, found {}", where, key, range, value));
}

// What is predicted for a plan and for each of its alternatives.
template <class Promise>
void validate_promise(std::string_view where, const Promise& promise, size_t num_levels) {
  refuse_bad_amount(where, "throughput_samples_per_s", promise.throughput_samples_per_s);
  refuse_bad_amount(where, "idle_share", promise.idle_share, 1);
  refuse_negative(where, "latency_ns", promise.latency_ns);
  if (!promise.bytes_per_sample.empty() && promise.bytes_per_sample.size() != num_levels) {
    throw ConfigError(fmt::format(
        "{}: expected bytes_per_sample for each of the cluster's {} levels or none, found {}",
        where, num_levels, promise.bytes_per_sample.size()));
  }
  for (const double bytes : promise.bytes_per_sample)
    refuse_bad_amount(where, "bytes_per_sample", bytes);
}

// Buckets are in the order of the layers: each is needed no earlier and made no later than the one
// before.
void validate_buckets(const std::string& where, const Stage& stage) {
  refuse_negative(where, "sync_latency_ns", stage.sync_latency_ns);
  GradientBucket before{.backward_ns = stage.backward_ns,
                        .backward_weight_ns = stage.backward_weight_ns};
  if (!stage.buckets.empty() && stage.replicas == 1)
    throw ConfigError(where + " has buckets, which only stages with replicas have");
  for (size_t i = 0; i < stage.buckets.size(); ++i) {
    const GradientBucket& bucket = stage.buckets[i];
    const std::string place = fmt::format("{}, bucket {}", where, i);
    refuse_negative(place, "weight_bytes", bucket.weight_bytes);
    refuse_negative(place, "step_ns", bucket.step_ns);
    refuse_negative(place, "wire_ns", bucket.wire_ns);
    refuse_negative(place, "server_ns", bucket.server_ns);
    refuse_negative(place, "processor_ns", bucket.processor_ns);
    const auto refuse_outside = [&](std::string_view key, int64_t found, int64_t least,
                                    int64_t most) {
      if (found >= least && found <= most) return;
      throw ConfigError(
          fmt::format("{}: expected {} from {} to {}, found {}", place, key, least, most, found));
    };
    refuse_outside("forward_ns", bucket.forward_ns, before.forward_ns, stage.forward_ns);
    refuse_outside("backward_ns", bucket.backward_ns, 0, before.backward_ns);
    refuse_outside("backward_weight_ns", bucket.backward_weight_ns, 0, before.backward_weight_ns);
    before = bucket;
  }
}

void validate(const Stage& stage, size_t position) {
  const std::string where = fmt::format("stage {}", position);
  if (stage.layers.empty()) throw ConfigError(where + " has no layer, expected at least one");
  refuse_below_one(where, "replicas", stage.replicas);
  refuse_below_one(where, "tensor", stage.tensor);
  refuse_negative(where, "team_bytes", stage.team_bytes);
  if (stage.team_bytes > 0 && stage.tensor == 1)
    throw ConfigError(where + " has team_bytes, which only stages with teams have (tensor)");
  if (stage.sequence && stage.tensor == 1) {
    throw ConfigError(where +
                      " has sequence, which only stages with teams have: expected tensor of "
                      "at least 2, found 1");
  }
  refuse_negative(where, "forward_ns", stage.forward_ns);
  refuse_negative(where, "backward_ns", stage.backward_ns);
  refuse_negative(where, "accumulate_ns", stage.accumulate_ns);
  refuse_negative(where, "step_ns", stage.step_ns);
  refuse_negative(where, "sync_ns", stage.sync_ns);
  refuse_negative(where, "weight_bytes", stage.weight_bytes);
  refuse_negative(where, "short_weight_bytes", stage.short_weight_bytes);
  refuse_negative(where, "constant_bytes", stage.constant_bytes);
  refuse_negative(where, "working_bytes", stage.working_bytes);
  refuse_negative(where, "waiting_bytes", stage.waiting_bytes);
  if (stage.passes) {
    refuse_negative(where, "passes.first_bytes", stage.passes->first_bytes);
    refuse_negative(where, "passes.last_bytes", stage.passes->last_bytes);
    refuse_negative(where, "passes.only_bytes", stage.passes->only_bytes);
  }
  if (stage.short_weight_bytes > stage.weight_bytes) {
    throw ConfigError(
        fmt::format("{}: expected short_weight_bytes of at most weight_bytes, {}, found {}", where,
                    stage.weight_bytes, stage.short_weight_bytes));
  }
  refuse_negative(where, "stash_bytes", stage.stash_bytes);
  refuse_negative(where, "memory_bytes", stage.memory_bytes);
  if (stage.first_worker < -1)
    throw ConfigError(fmt::format("{}: expected first_worker of at least -1, found {}", where,
                                  stage.first_worker));
  refuse_negative(where, "backward_weight_ns", stage.backward_weight_ns);
  if (stage.backward_weight_ns > stage.backward_ns) {
    throw ConfigError(
        fmt::format("{}: expected backward_weight_ns of at most backward_ns, {}, found {}", where,
                    stage.backward_ns, stage.backward_weight_ns));
  }
  if (!checked_add(stage.forward_ns, stage.backward_ns))
    throw ConfigError(where + ": forward_ns plus backward_ns is beyond 64 bits");
  validate_buckets(where, stage);
}

void validate(const Link& link, size_t position, size_t num_stages) {
  const std::string where =
      fmt::format("link {} (stage {} to {})", position, link.from.value, link.to.value);
  if (link.from.value < 0 || link.from >= link.to || link.to.index() >= num_stages) {
    throw ConfigError(fmt::format(
        "{}: expected a link from a stage to a later one of the {} stages", where, num_stages));
  }
  refuse_negative(where, "bytes", link.bytes);
  refuse_negative(where, "gradient_bytes", link.bytes_back());
  refuse_negative(where, "width", link.width);
  parse_boundary(to_string(link.coding));  // refuses a rank that is none
}

void validate_keep(const Plan& plan) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const std::string refusal = keep_refusal(traits(plan.strategy), plan.stages[s].keep);
    if (!refusal.empty()) throw ConfigError(fmt::format("stage {}: {}", s, refusal));
  }
}

// Either no stage has a place, or each has one of its own within the cluster.
void validate_places(const Plan& plan) {
  struct Place {
    int64_t begin;
    int64_t end;
    size_t stage;
  };
  std::vector<Place> places;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (stage.first_worker >= 0)
      places.push_back(
          {stage.first_worker,
           saturating_add(stage.first_worker, saturating_mul(stage.replicas, stage.tensor)), s});
  }
  if (places.empty()) return;
  if (places.size() != plan.stages.size()) {
    throw ConfigError(
        fmt::format("expected first_worker for every stage or for none, found it for {} of {}",
                    places.size(), plan.stages.size()));
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.begin, a.stage) < std::pair(b.begin, b.stage);
  });
  const int workers = plan.cluster.num_workers();
  if (places.back().end > workers) {
    throw ConfigError(
        fmt::format("stage {}: first_worker {} with its replicas{} reaches worker {}, the cluster "
                    "has {} workers",
                    places.back().stage, places.back().begin,
                    plan.stages[places.back().stage].tensor > 1 ? " and their teams" : "",
                    places.back().end - 1, workers));
  }
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin >= places[i - 1].end) continue;
    throw ConfigError(
        fmt::format("stages {} and {} are both placed on worker {} (first_worker, replicas and "
                    "tensor)",
                    places[i - 1].stage, places[i].stage, places[i].begin));
  }
}

void validate_workers(const Plan& plan) {
  if (plan.worker_of_replica.empty()) return;
  size_t num_replicas = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    num_replicas += static_cast<size_t>(plan.stages[s].replicas);
    if (plan.stages[s].first_worker >= 0)
      throw ConfigError(
          fmt::format("stage {} has a first_worker, and hosts names its workers too", s));
  }
  if (plan.worker_of_replica.size() != num_replicas) {
    throw ConfigError(
        fmt::format("expected hosts to name the worker of each of the {} replicas, found {}",
                    num_replicas, plan.worker_of_replica.size()));
  }
  if (plan.weights != WeightPolicy::Flush) {
    throw ConfigError(fmt::format(
        "hosts puts several stages on one worker, which requires weights flush, found '{}'",
        to_string(plan.weights)));
  }
  const int workers = plan.cluster.num_workers();
  std::vector<int64_t> last_stage(plan.worker_of_replica.size(), -1);
  size_t next = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (int k = 0; k < plan.stages[s].replicas; ++k, ++next) {
      const int worker = plan.worker_of_replica[next];
      if (worker < 0 || worker >= workers || static_cast<size_t>(worker) >= last_stage.size()) {
        throw ConfigError(
            fmt::format("hosts puts stage {} on worker {}; expected workers from 0 on without "
                        "gaps, of the cluster's {}",
                        s, worker, workers));
      }
      int64_t& last = last_stage[static_cast<size_t>(worker)];
      if (last == static_cast<int64_t>(s))
        throw ConfigError(
            fmt::format("hosts puts two replicas of stage {} on worker {}", s, worker));
      if (last >= 0 && plan.stages[static_cast<size_t>(last)].tensor != plan.stages[s].tensor) {
        throw ConfigError(fmt::format(
            "hosts puts stages {} and {} on worker {}, whose teams have {} and {} members: "
            "expected as many",
            last, s, worker, plan.stages[static_cast<size_t>(last)].tensor, plan.stages[s].tensor));
      }
      last = static_cast<int64_t>(s);
    }
  }
  const int named =
      *std::max_element(plan.worker_of_replica.begin(), plan.worker_of_replica.end()) + 1;
  const auto used = last_stage.begin() + named;
  if (const auto gap = std::find(last_stage.begin(), used, -1); gap != used) {
    throw ConfigError(
        fmt::format("hosts leaves out worker {} of {}", gap - last_stage.begin(), named));
  }
  if (plan.num_workers() <= workers) return;
  throw ConfigError(
      fmt::format("the teams need {} workers, the cluster has {}", plan.num_workers(), workers));
}

}  // namespace

int64_t Stage::work_ns() const {
  const int64_t computed_ns = saturating_add(forward_ns, backward_ns);
  return recompute ? saturating_add(computed_ns, forward_ns) : computed_ns;
}

namespace {

/// By worker, where workers hold several stages: how many members its team has.
std::vector<int> teams_of_workers(const Plan& plan) {
  std::vector<int> sizes;
  size_t next = 0;
  for (const Stage& stage : plan.stages) {
    for (int k = 0; k < stage.replicas && next < plan.worker_of_replica.size(); ++k, ++next) {
      const int worker = plan.worker_of_replica[next];
      if (worker < 0 || static_cast<size_t>(worker) >= plan.worker_of_replica.size()) continue;
      sizes.resize(std::max(sizes.size(), static_cast<size_t>(worker) + 1), 1);
      sizes[static_cast<size_t>(worker)] = stage.tensor;
    }
  }
  return sizes;
}

std::string team_suffix(const std::vector<int>& teams) {
  if (teams.empty()) return "";
  const bool alike =
      std::adjacent_find(teams.begin(), teams.end(), std::not_equal_to<>()) == teams.end();
  return alike ? fmt::format(", teams of {}", teams.front())
               : fmt::format(", teams of {}", fmt::join(teams, " and "));
}

}  // namespace

std::string Plan::config() const {
  std::string text;
  if (shares_workers()) {
    const int last = *std::max_element(worker_of_replica.begin(), worker_of_replica.end());
    const auto workers = static_cast<size_t>(std::clamp(last, 0, INT_MAX - 1) + 1);
    const size_t chunks = worker_of_replica.size() / workers;
    // Where two directions of a pipeline pass the same workers, all stages are within one copy.
    const auto directions = static_cast<size_t>(traits(strategy).replicas_per_copy());
    const size_t per_copy = chunks == 0 ? 0 : stages.size() * directions / chunks;
    if (per_copy == 0 || worker_of_replica.size() % workers != 0 || workers % per_copy != 0) {
      return fmt::format("{} workers, {} stages{}", workers, stages.size(), team_suffix(teams()));
    }
    text = fmt::format("{}x{} chunks", per_copy, chunks);
    if (workers != per_copy) text = fmt::format("{}x({})", workers / per_copy, text);
    return text + team_suffix(teams());
  }
  for (const Stage& stage : stages) {
    text += fmt::format("{}{}", text.empty() ? "" : "-", stage.replicas);
    if (stage.tensor != 1) text += fmt::format("t{}", stage.tensor);
  }
  return text;
}

std::string Plan::weights_text() const {
  std::string text(to_string(weights));
  if (compensation != Compensation::None)
    text += fmt::format(", compensated by {}", to_string(compensation));
  return text;
}

int Plan::num_workers() const {
  int64_t workers = 0;
  if (shares_workers()) {
    const int64_t named =
        int64_t{*std::max_element(worker_of_replica.begin(), worker_of_replica.end())} + 1;
    if (teams().empty()) return static_cast<int>(std::clamp<int64_t>(named, 0, INT_MAX));
    for (const int size : teams_of_workers(*this)) workers = saturating_add(workers, size);
    return static_cast<int>(std::clamp<int64_t>(workers, 0, INT_MAX));
  }
  for (const Stage& stage : stages)
    workers = saturating_add(workers, saturating_mul(stage.replicas, stage.tensor));
  return static_cast<int>(std::clamp<int64_t>(workers, INT_MIN, INT_MAX));
}

std::vector<int> Plan::replicas() const {
  std::vector<int> counts;
  for (const Stage& stage : stages) counts.push_back(stage.replicas);
  return counts;
}

std::vector<int> Plan::teams() const {
  std::vector<int> sizes;
  for (const Stage& stage : stages) sizes.push_back(stage.tensor);
  const bool whole = std::all_of(sizes.begin(), sizes.end(), [](int size) { return size == 1; });
  return whole ? std::vector<int>() : sizes;
}

std::vector<std::vector<int>> workers_by_stage(const Plan& plan) {
  std::vector<std::vector<int>> result;
  if (!plan.shares_workers()) return result;
  auto next = plan.worker_of_replica.begin();
  for (const Stage& stage : plan.stages) {
    const auto count =
        std::min<std::ptrdiff_t>(std::max(stage.replicas, 0), plan.worker_of_replica.end() - next);
    result.emplace_back(next, next + count);
    next += count;
  }
  return result;
}

std::vector<bool> sharded_stages(const Plan& plan) {
  std::vector<bool> stages;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (!plan.stages[s].shard_optimizer) continue;
    stages.resize(plan.stages.size());
    stages[s] = true;
  }
  return stages;
}

namespace {

/// The stage of each name; throws ConfigError where a layer has two.
std::unordered_map<std::string_view, StageId> stage_of_name(const Plan& plan) {
  std::unordered_map<std::string_view, StageId> stages;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    for (const std::string& layer : plan.stages[i].layers) {
      const auto [other, is_new] = stages.emplace(layer, StageId{static_cast<int32_t>(i)});
      if (!is_new)
        throw ConfigError(fmt::format("the plan places layer '{}' twice: in stages {} and {}",
                                      layer, other->second.value, i));
    }
  }
  return stages;
}

}  // namespace

std::vector<StageId> stage_of_layer(const Plan& plan, const graph::ModelGraph& graph) {
  std::unordered_map<std::string_view, StageId> stages = stage_of_name(plan);
  std::vector<StageId> result;
  result.reserve(graph.layers().size());
  for (const graph::LayerNode& layer : graph.layers()) {
    const auto found = stages.find(layer.name);
    if (found == stages.end())
      throw ConfigError(
          fmt::format("the plan places layer '{}' of the model in no stage", layer.name));
    for (const graph::ValueRef& input : layer.inputs) {
      if (input.is_model_input() || result[input.layer.index()] <= found->second) continue;
      throw ConfigError(fmt::format(
          "the plan puts layer '{}' into stage {}, but it reads layer '{}' of the later stage {}",
          layer.name, found->second.value, graph.layer(input.layer).name,
          result[input.layer.index()].value));
    }
    result.push_back(found->second);
    stages.erase(found);
  }
  if (!stages.empty()) {
    const auto first =
        std::min_element(stages.begin(), stages.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    throw ConfigError(
        fmt::format("the plan names layer '{}', which the model does not have", first->first));
  }
  return result;
}

void check_compensation(const Plan& plan) {
  std::string refusal = compensation_refusal(plan.compensation, plan.weights);
  for (size_t s = 0; s < plan.stages.size() && refusal.empty(); ++s) {
    refusal = compensation_refusal(plan.compensation,
                                   CompensatedStage{.stage = static_cast<int32_t>(s),
                                                    .recompute = plan.stages[s].recompute,
                                                    .offload = plan.stages[s].offload,
                                                    .state_parts = plan.stages[s].state_parts()});
  }
  if (refusal.empty() && plan.compensation != Compensation::None && steps_alone(plan.sync))
    refusal = fmt::format(
        "compensation {} does not work with the synchronisation {}, whose replicas step by "
        "themselves: expected another way to sum",
        to_string(plan.compensation), to_string(plan.sync));
  if (!refusal.empty()) throw ConfigError(refusal);
}

void validate(const Plan& plan) {
  if (plan.stages.empty()) throw ConfigError("the plan has no stage, expected at least one");
  cluster::validate(plan.cluster);
  refuse_below_one("plan", "micro_batch_size", plan.micro_batch_size);
  refuse_below_one("plan", "micro_batches", plan.micro_batches);
  refuse_below_one("plan", "depth", plan.depth);
  refuse_negative("plan", "bottleneck_ns", plan.prediction.bottleneck_ns);
  validate_promise("plan", plan.prediction, plan.cluster.levels.size());
  refuse_bad_amount("plan", "optimality_gap", plan.explanation.optimality_gap);
  refuse_bad_amount("plan", "compute_spread", plan.prediction.compute_spread);
  refuse_bad_amount("plan", "compute_error", plan.prediction.compute_error);
  refuse_bad_amount("plan", "throughput_low_samples_per_s",
                    plan.prediction.throughput_low_samples_per_s);
  refuse_bad_amount("plan", "throughput_high_samples_per_s",
                    plan.prediction.throughput_high_samples_per_s);
  refuse_bad_amount("plan", "optimizer_state_per_weight", plan.optimizer_state_per_weight);
  check_sync_precision(plan.sync, plan.gradient_precision);
  check_compensation(plan);
  for (size_t i = 0; i < plan.stages.size(); ++i) validate(plan.stages[i], i);
  stage_of_name(plan);  // refuses a layer in two stages
  refuse_negative("plan", "slack", plan.slack);
  validate_keep(plan);
  validate_places(plan);
  validate_workers(plan);
  for (size_t i = 0; i < plan.links.size(); ++i) validate(plan.links[i], i, plan.stages.size());
  for (const Alternative& alternative : plan.explanation.alternatives) {
    const std::string where = fmt::format("alternative '{}'", to_string(alternative.strategy));
    validate_promise(where, alternative, plan.cluster.levels.size());
    refuse_negative(where, "micro_batches", alternative.micro_batches);
    refuse_negative(where, "memory_bytes", alternative.memory_bytes);
  }
}

}  // namespace penstock::plan
