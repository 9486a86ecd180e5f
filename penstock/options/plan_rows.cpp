// The options that say which plan a training has.
#include "penstock/options/sections.h"

#include <fmt/format.h>

#include "penstock/plan/sync_precision.h"

namespace penstock::options {
namespace {

using R = TrainRequest;

/// `parse` throws ConfigError for names of no value; `text` names one.
template <class Value, class Parse, class Text>
Named named(std::optional<Value>& value, Parse parse, Text text) {
  return {[&value, parse](const std::string& name) { value = parse(name); },
          [&value, text] { return value ? std::string(text(*value)) : std::string(); }};
}

Named strategy(PlanSection& plan) {
  return {[&plan](const std::string& name) { plan.strategy = plan::parse_strategy_choice(name); },
          [&plan] { return std::string(to_string(plan.strategy)); }};
}

std::string name_of(const SyncRequest& sync) {
  return sync.method ? std::string(to_string(*sync.method)) : "auto";
}
SyncRequest parse_sync(const std::string& name) { return {plan::parse_sync_choice(name)}; }

Named weights(PlanSection& plan) {
  return named(plan.weights, plan::parse_weight_policy,
               [](plan::WeightPolicy value) { return to_string(value); });
}
Named gradient_precision(PlanSection& plan) {
  return named(plan.gradient_precision, plan::parse_sync_precision,
               [](FloatType value) { return to_string(value); });
}
Named precision(PlanSection& plan) {
  return named(plan.precision, parse_precision, [](Precision value) { return to_string(value); });
}

bool has_replicas(const plan::Plan& plan) {
  return plan.replicas() != std::vector<int>(plan.stages.size(), 1);
}

std::string without_replicas(const RunFacts& facts) {
  return has_replicas(facts.plan) ? ""
                                  : "the plan has no replicas, so there are no gradients to add";
}

bool is_asynchronous(const TrainRequest& request) {
  return request.plan.sync && request.plan.sync->method == plan::GradientSync::Asynchronous;
}

std::string without_asynchronous(const RunFacts& facts) {
  if (!has_replicas(facts.plan)) return without_replicas(facts);
  if (facts.plan.sync == plan::GradientSync::Asynchronous) return "";
  return fmt::format(
      "the plan's replicas wait for each other (--sync {}), expected --sync asynchronous",
      to_string(facts.plan.sync));
}

constexpr std::string_view kCommandAlone = "the command alone has it";

/// Those that a plan which is given has already.
std::vector<Row> split_rows() {
  return in(
      Section::Plan, kCommandAlone,
      {{.name = "--plan",
        .keyword = "plan",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::file>,
        .help = "Train with this plan (JSON)"},
       {.name = "--strategy",
        .keyword = "strategy",
        .changes = Changes::Plan,
        .slot = [](R& r) -> Slot { return strategy(r.plan); },
        .help = "auto, or one of: " + plan::names_of(plan::training_strategies()),
        .excludes = {"--plan"}},
       {.name = "--workers",
        .keyword = "workers",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::workers>,
        .help = "Workers: threads of this process, or of all ranks of a job together (default: 1; "
                "in a job one per rank)",
        .excludes = {"--plan"}},
       {.name = "--profile",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::profile>,
        .help = "Plan from this profile instead of measuring",
        .excludes = {"--plan"}},
       {.name = "--chunks",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::chunks>,
        .help = "interleaved, interleaved-zb: stages per worker (default: chosen)",
        .excludes = {"--plan"}},
       {.name = "--slack",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::slack>,
        .help = "eager-1f1b: extra micro-batches in flight per later stage, compared with 1F1B "
                "(default: chosen)",
        .excludes = {"--plan"}},
       {.name = "--keep",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::keep>,
        .help = "zb-auto, zb-auto-v: micro-batches that a worker keeps at most from F to W, summed "
                "over its stages (default: 2p-1 and 2p)",
        .excludes = {"--plan"}},
       {.name = "--weights",
        .keyword = "weights",
        .changes = Changes::Both,
        .slot = [](R& r) -> Slot { return weights(r.plan); },
        .help = "Weight policy: flush, stash, vertical-sync, 2bw, latest, current"}});
}

std::vector<Row> sync_rows() {
  return in(
      Section::Plan, kCommandAlone,
      {{.name = "--sync",
        .changes = Changes::Both,
        .slot = [](R& r) -> Slot { return named(r.plan.sync, parse_sync, name_of); },
        .help = "How replicas on several ranks sum their gradients (default: the plan's, or "
                "ordered): ordered, ring, parameter-server, summation, or hierarchical (first "
                "inside each machine). auto takes the fastest that was predicted, or an earlier "
                "one within 0.5 % of it. Under asynchronous replicas, also those of one rank, do "
                "not wait for each other. ring and hierarchical change results by rounding",
        .idle =
            [](const RunFacts& facts) {
              const auto& sync = facts.request.plan.sync;
              return sync && !sync->method ? std::string() : without_replicas(facts);
            },
        .kept = [](const R& r) -> std::optional<std::string> {
          return is_asynchronous(r) ? "asynchronous" : "synchronous";
        }},
       {.name = "--sync-precision",
        .changes = Changes::Both,
        .slot = [](R& r) -> Slot { return gradient_precision(r.plan); },
        .help = "Numbers in which gradients travel between replicas: float32, bfloat16, float16 "
                "(default: the plan's, or float32). 16 bits are half of the bytes; every rank "
                "rounds alike, so results do not depend on the number of ranks",
        .idle = without_replicas},
       {.name = "--shard-optimizer",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::shard_optimizer>,
        .help = "Share out the optimiser's state over the replicas of each stage (ZeRO-1): each "
                "keeps and steps its share of the weights. The same results (default: the plan's)",
        .idle = [](const RunFacts& facts) -> std::string {
          return has_replicas(facts.plan)
                     ? ""
                     : "the plan has no replicas that could share out the optimiser's state";
        }},
       {.name = "--precision",
        .keyword = "precision",
        .changes = Changes::Both,
        .slot = [](R& r) -> Slot { return precision(r.plan); },
        .help = "Numbers in which the model computes (default: the plan's, or float32): float32, "
                "tf32 (GPUs), bfloat16 or float16. 16 bits halve activations, messages between "
                "stages and versions of the weights; the trained weights stay float32"},
       {.name = "--staleness",
        .changes = Changes::Learning,
        .slot = at<&R::run, &RunRequest::staleness>,
        .help = "asynchronous: how many steps a replica may be ahead of the slowest one",
        .idle = without_asynchronous,
        .kept = [](const R& r) -> std::optional<std::string> {
          if (!is_asynchronous(r)) return std::nullopt;
          return fmt::to_string(r.run.staleness);
        }},
       {.name = "--micro-batches",
        .keyword = "micro_batches",
        .changes = Changes::Plan,
        .slot = at<&R::plan, &PlanSection::micro_batches>,
        .help = "Micro-batches per optimiser step (default: the strategy's own)",
        .least = 1}});
}

}  // namespace

std::vector<Row> plan_rows() {
  std::vector<Row> rows = split_rows();
  for (Row& row : sync_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace penstock::options
