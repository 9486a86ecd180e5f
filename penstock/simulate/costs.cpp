#include "penstock/simulate/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/plan/boundaries.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/schedule/gradient_sets.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate {

namespace {

bool always_gives_all_sums(const plan::Plan& plan) {
  return plan.sync != plan::GradientSync::Ordered;
}

void add_gather(StageCost& stage) {
  stage.sync_ns = saturating_add(stage.sync_ns, stage.sync_ns / 2);
  for (plan::GradientBucket& bucket : stage.buckets)
    bucket.wire_ns = saturating_add(bucket.wire_ns, bucket.wire_ns / 2);
}

}  // namespace

void add_gathers(const plan::Plan& plan, Costs& costs) {
  if (always_gives_all_sums(plan)) return;
  for (StageCost& stage : costs.stages) {
    if (stage.state_parts > 1) add_gather(stage);
  }
}

namespace {

/// Each stage once for each member of its teams, and the links between these.
void spread_over_teams(const std::vector<int>& teams, Costs& costs) {
  if (teams.empty()) return;
  std::vector<schedule::StageLink> whole;
  for (const LinkCost& link : costs.links) whole.push_back({link.from, link.to});
  // Refuses too many of them.
  const std::vector<schedule::MemberLink> between = schedule::member_links(whole, teams);
  std::vector<StageCost> stages;
  for (size_t s = 0; s < teams.size(); ++s)
    stages.insert(stages.end(), static_cast<size_t>(teams[s]), costs.stages[s]);
  costs.stages = std::move(stages);
  std::vector<LinkCost> links;
  for (const schedule::MemberLink& each : between) {
    links.push_back(costs.links[each.whole]);
    links.back().from = each.link.from;
    links.back().to = each.link.to;
  }
  costs.links = std::move(links);
}

}  // namespace

Costs costs_of(const plan::Plan& plan, std::optional<int64_t> gradient_groups) {
  Costs costs;
  costs.stages.reserve(plan.stages.size());
  for (const plan::Stage& stage : plan.stages) {
    costs.stages.push_back({.forward_ns = stage.forward_ns,
                            .backward_ns = stage.backward_ns,
                            .backward_weight_ns = stage.backward_weight_ns,
                            .accumulate_ns = stage.accumulate_ns,
                            .step_ns = ceil_div(stage.step_ns, stage.state_parts()),
                            .sync_ns = stage.sync_ns,
                            .buckets = stage.buckets,
                            .sync_latency_ns = stage.sync_latency_ns,
                            .waits_for_sums = stage.waits_for_sums,
                            .stash_bytes = stage.stash_bytes,
                            .weight_bytes = stage.weight_bytes,
                            .state_parts = stage.state_parts(),
                            .gradient_sets = schedule::gradient_sets(
                                gradient_groups, stage.replicas, plan.micro_batches),
                            .move_ns = stage.move_ns,
                            .first_worker = stage.first_worker,
                            .short_weight_bytes = stage.short_weight_bytes,
                            .constant_bytes = stage.constant_bytes,
                            .working_bytes = stage.working_bytes,
                            .passes = stage.passes,
                            .shares_weights = stage.shares_weights});
    if (stage.state_parts() == 1) continue;
    for (plan::GradientBucket& bucket : costs.stages.back().buckets)
      bucket.step_ns = ceil_div(bucket.step_ns, stage.state_parts());
    if (always_gives_all_sums(plan)) add_gather(costs.stages.back());
  }
  costs.links.reserve(plan.links.size());
  for (const plan::Link& link : plan.links) {
    const plan::SentOver sent = plan::sent_over(link, plan.precision);
    costs.links.push_back(
        {.from = link.from,
         .to = link.to,
         .bytes = sent.bytes,
         .gradient_bytes = link.gradient_bytes ? std::optional(sent.bytes_back) : std::nullopt,
         .coding_ns = sent.coding_ns,
         .coding_back_ns = sent.coding_back_ns});
    if (link.to.value < 0 || link.to.index() >= costs.stages.size()) {
      throw ConfigError(fmt::format("the plan has a link to stage {}, it has {} stages",
                                    link.to.value, costs.stages.size()));
    }
    int64_t& input_bytes = costs.stages[link.to.index()].input_bytes;
    input_bytes = saturating_add(input_bytes, link.bytes);
  }
  spread_over_teams(plan.teams(), costs);
  costs.cluster = plan.cluster;
  costs.samples_per_micro_batch = plan.micro_batch_size;
  costs.optimizer_state_per_weight = plan.optimizer_state_per_weight;
  return costs;
}

namespace detail {

namespace {

void check_buckets(const StageCost& stage, size_t number) {
  for (const plan::GradientBucket& bucket : stage.buckets) {
    const bool known = bucket.forward_ns >= 0 && bucket.forward_ns <= stage.forward_ns &&
                       bucket.backward_ns >= 0 && bucket.backward_ns <= stage.backward_ns &&
                       bucket.backward_weight_ns >= 0 &&
                       bucket.backward_weight_ns <= stage.backward_weight_ns &&
                       bucket.step_ns >= 0 && bucket.wire_ns >= 0 && bucket.server_ns >= 0 &&
                       bucket.processor_ns >= 0;
    if (known) continue;
    throw ConfigError(fmt::format(
        "the costs of stage {} have a bucket of gradients that does not fit into its passes",
        number));
  }
}

}  // namespace

void check_costs(const Costs& costs, int num_stages) {
  if (costs.stages.size() != static_cast<size_t>(num_stages)) {
    throw ConfigError(fmt::format("the costs are for {} stages, the schedule has {}",
                                  costs.stages.size(), num_stages));
  }
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& stage = costs.stages[s];
    if (std::min({stage.forward_ns, stage.backward_ns, stage.backward_weight_ns,
                  stage.accumulate_ns, stage.step_ns, stage.sync_ns, stage.sync_latency_ns,
                  stage.stash_bytes, stage.weight_bytes, stage.short_weight_bytes,
                  stage.constant_bytes, stage.working_bytes, stage.gradient_sets,
                  stage.input_bytes}) < 0 ||
        (stage.passes && std::min({stage.passes->first_bytes, stage.passes->last_bytes,
                                   stage.passes->only_bytes}) < 0) ||
        stage.short_weight_bytes > stage.weight_bytes) {
      throw ConfigError(fmt::format("the costs of stage {} contain a negative time or size", s));
    }
    if (stage.backward_weight_ns > stage.backward_ns) {
      throw ConfigError(
          fmt::format("the costs of stage {} say that the weights' gradients take {} ns of a "
                      "backward pass of {} ns",
                      s, stage.backward_weight_ns, stage.backward_ns));
    }
    check_buckets(stage, s);
  }
  for (const LinkCost& link : costs.links) {
    const bool known =
        link.from.value >= 0 && link.to.value > link.from.value && link.to.value < num_stages;
    if (!known || std::min(link.bytes, link.bytes_back()) < 0) {
      throw ConfigError(fmt::format(
          "the costs have a link {} -> {} of {} bytes; the schedule has stages 0 to {} "
          "and links lead forwards",
          link.from.value, link.to.value, std::min(link.bytes, link.bytes_back()), num_stages - 1));
    }
  }
  if (!(costs.overlap >= 0 && costs.overlap <= 1)) {
    throw ConfigError(fmt::format("the overlap must lie between 0 and 1, found {}", costs.overlap));
  }
  if (std::min({costs.bandwidth_bytes_per_s, costs.latency_ns, costs.credits,
                costs.samples_per_micro_batch}) < 0 ||
      !(costs.optimizer_state_per_weight >= 0)) {
    throw ConfigError(
        "bandwidth, latency, credits, samples and optimiser state must not be negative");
  }
}

}  // namespace detail

}  // namespace penstock::simulate
