// The options that say which plan a training has.
#include "penstock/options/sections.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "penstock/plan/sync_precision.h"
#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using R = TrainRequest;

std::string name_of(const SyncRequest& sync) {
  return sync.method ? to_string(*sync.method) : "auto";
}
SyncRequest parse_sync(const std::string& name) { return {plan::parse_sync_choice(name)}; }

Named gradient_precision(PlanSection& plan) {
  return named_or_none(plan.gradient_precision, plan::parse_sync_precision,
                       [](FloatType value) { return to_string(value); });
}
Named precision(PlanSection& plan) {
  return named_or_none(plan.precision, parse_precision,
                       [](Precision value) { return to_string(value); });
}

bool has_replicas(const plan::Plan& plan) {
  return plan.replicas() != std::vector<int>(plan.stages.size(), 1);
}

std::string without_replicas(const RunFacts& facts) {
  return has_replicas(facts.plan) ? ""
                                  : "the plan has no replicas, so there are no gradients to add";
}

bool is_asynchronous(const TrainRequest& request) {
  return request.plan.sync && request.plan.sync->is(plan::GradientSync::Asynchronous);
}
bool has_factors(const TrainRequest& request) {
  return request.plan.sync && request.plan.sync->is(plan::GradientSync::PowerSgd);
}
bool has_rounds(const TrainRequest& request) {
  return request.plan.sync && request.plan.sync->is(plan::GradientSync::DiLoCo);
}

std::string without_asynchronous(const RunFacts& facts) {
  if (!has_replicas(facts.plan)) return without_replicas(facts);
  if (facts.plan.sync == plan::GradientSync::Asynchronous) return "";
  return fmt::format(
      "the plan's replicas wait for each other (--sync {}), expected --sync asynchronous",
      to_string(facts.plan.sync));
}

std::string without_rounds(const RunFacts& facts) {
  if (!has_replicas(facts.plan)) return without_replicas(facts);
  if (facts.plan.sync == plan::GradientSync::DiLoCo) return "";
  return fmt::format("the plan's replicas have one optimiser (--sync {}), expected --sync diloco:H",
                     to_string(facts.plan.sync));
}

/// Of the outer optimiser; checkpoints keep it where there is one.
template <double plan::OuterStep::*Field>
Row outer_row(std::string_view name, std::string help) {
  Row row{.name = name,
          .changes = Changes::Learning,
          .slot = [](R& r) -> Slot { return &(r.run.outer.*Field); },
          .help = std::move(help),
          .least = 0,
          .idle = without_rounds,
          .kept = [](const R& r) -> std::optional<std::string> {
            if (!has_rounds(r)) return std::nullopt;
            return fmt::to_string(r.run.outer.*Field);
          }};
  return row;
}

constexpr std::string_view kCommandAlone = "the command alone has it";

Row own_micro_batches() {
  Row row = micro_batches_row<R>("the strategy's own", /*least=*/1);
  row.idle = [](const RunFacts& facts) -> std::string {
    const int64_t samples = facts.request.run.batch_size.value_or(kUsualBatchSize);
    const int64_t asked = facts.request.plan.micro_batches.value_or(1);
    if (!facts.request.plan.file.empty() || asked <= samples) return "";
    return fmt::format("a step has {} samples, so there are no {} micro-batches: {} are used",
                       samples, asked, facts.plan.micro_batches);
  };
  return row;
}

/// A plan that is given has it already.
Row of_plan(std::string_view keyword, Row row) {
  return without("--plan", with(keyword, Changes::Plan, std::move(row)));
}

Row compensate_row() {
  Row one = with("compensate", Changes::Both,
                 row<R>(
                     "--compensate",
                     [](R& r) -> Slot {
                       return named_or_none(
                           r.plan.compensation, plan::parse_compensation,
                           [](plan::Compensation compensation) { return to_string(compensation); });
                     },
                     kCompensateHelp + " (default: the plan's, or none)"));
  one.idle = [](const RunFacts& facts) -> std::string {
    const bool is_delayed = facts.plan.weights != plan::WeightPolicy::Flush;
    const bool asks = facts.request.plan.compensation.value_or(plan::Compensation::None) !=
                      plan::Compensation::None;
    return is_delayed || !asks ? "" : "the plan's weights are flush, which delays no gradient";
  };
  return one;
}

Row boundary_row() {
  Row one = with(
      "boundary", Changes::Both,
      row<R>(
          "--boundary",
          [](R& r) -> Slot {
            return named_or_none(
                r.plan.boundary,
                [](const std::string& name) {
                  return BoundaryRequest{plan::parse_boundary_choice(name)};
                },
                [](const BoundaryRequest& boundary) { return boundary_name(boundary.coding); });
          },
          std::string(kBoundaryHelp) + " (default: the plan's, or float32)"));
  one.idle = [](const RunFacts& facts) -> std::string {
    return facts.plan.stages.size() > 1
               ? ""
               : "the plan has one stage, so there are no messages between stages";
  };
  return one;
}

Row sequence_row() {
  Row one{.name = "--sequence-parallel",
          .keyword = "sequence_parallel",
          .changes = Changes::Plan,
          .slot = at<&R::plan, &PlanSection::sequence>,
          .help =
              "With --tensor: between the layers whose weights a team shares out, its members have "
              "a part of the places of sequences each. In models of the zoo the team's size must "
              "divide their number. Less memory; results differ by rounding (default: the plan's)"};
  one.idle = [](const RunFacts& facts) -> std::string {
    return facts.plan.teams().empty() ? "the plan's stages have no teams (--tensor)" : "";
  };
  return one;
}

Row profile_cache_row() {
  Row one = row<&R::plan, &PlanSection::profile_cache>(
      "--profile-cache",
      "Folder in which measured profiles are kept, for later runs of the same model, batch size "
      "and machine. off: none; new: measure again. Default: $PENSTOCK_PROFILE_CACHE, or "
      "penstock/profiles in the user's folder of caches");
  one.keyword = "profile_cache";
  one.is_path = [](std::string_view value) { return value != "off" && value != "new"; };
  one.changes = Changes::Run;
  one.idle = [](const RunFacts& facts) -> std::string {
    return facts.request.plan.file.empty() ? "" : "the plan is given (--plan)";
  };
  return one;
}

std::vector<Row> split_rows() {
  return in<R>(
      Section::Plan, kCommandAlone,
      {with("plan", Changes::Plan,
            path(row<&R::plan, &PlanSection::file>("--plan", "Train with this plan (JSON)"))),
       of_plan("strategy",
               strategy_row<R>("auto, or one of: " + plan::names_of(plan::training_strategies()))),
       of_plan("workers", row<&R::plan, &PlanSection::workers>(
                              "--workers",
                              "Workers: threads of this process, or of all ranks of a job together "
                              "(default: 1; in a job one per rank)")),
       of_plan("tensor", tensor_row<R>()), sequence_row(),
       of_plan("straight",
               row<&R::plan, &PlanSection::straight>(
                   "--straight",
                   "One worker per stage: no replicas, whose gradients are added in an order of "
                   "their own, so that results differ from those of one worker by rounding")),
       of_plan("", path(row<&R::plan, &PlanSection::profile>(
                       "--profile", "Plan from this profile instead of measuring"))),
       without("--profile", profile_cache_row()), of_plan("", chunks_row<R>("chosen")),
       of_plan("", slack_row<R>("chosen")), of_plan("", keep_row<R>("2p-1 and 2p")),
       with("weights", Changes::Both, weights_row<R>()), compensate_row(), boundary_row()});
}

std::vector<Row> sync_rows() {
  return in<R>(
      Section::Plan, kCommandAlone,
      {{.name = "--sync",
        .keyword = "sync",
        .changes = Changes::Both,
        .slot = [](R& r) -> Slot { return named_or_none(r.plan.sync, parse_sync, name_of); },
        .help = "How replicas on several ranks sum their gradients (default: the plan's, or "
                "auto): ordered (with the bits of one thread), ring, parameter-server, summation, "
                "or hierarchical (first inside each machine). auto takes the fastest that was "
                "predicted, or ordered within 0.5 % of it, or where the run is checked against one "
                "worker. Under asynchronous replicas, also those of one rank, do not wait for each "
                "other. Under diloco:H each copy of the pipeline makes H steps by itself, then "
                "an outer optimiser steps the common weights by the mean of the changes. "
                "powersgd:R sums matrices as factors of rank R. ring and hierarchical change "
                "results by rounding",
        .idle =
            [](const RunFacts& facts) {
              const auto& sync = facts.request.plan.sync;
              return sync && !sync->method ? std::string() : without_replicas(facts);
            },
        .kept = [](const R& r) -> std::optional<std::string> {
          if (has_rounds(r) || has_factors(r)) return name_of(*r.plan.sync);
          return is_asynchronous(r) ? "asynchronous" : "synchronous";
        }},
       {.name = "--sync-precision",
        .changes = Changes::Both,
        .slot = [](R& r) -> Slot { return gradient_precision(r.plan); },
        .help = fmt::format("{} (default: the plan's, or float32). 16 bits are half of the bytes; "
                            "every rank rounds alike, so results do not depend on the number of "
                            "ranks",
                            kSyncPrecisionHelp),
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
        .help = fmt::format("Numbers in which the model computes (default: the plan's, or "
                            "float32): {}",
                            kPrecisionHelp)},
       {.name = "--staleness",
        .changes = Changes::Learning,
        .slot = at<&R::run, &RunRequest::staleness>,
        .help = "asynchronous: how many steps a replica may be ahead of the slowest one",
        .idle = without_asynchronous,
        .kept = [](const R& r) -> std::optional<std::string> {
          if (!is_asynchronous(r)) return std::nullopt;
          return fmt::to_string(r.run.staleness);
        }},
       outer_row<&plan::OuterStep::learning_rate>(
           "--outer-learning-rate",
           "diloco: learning rate of the outer optimiser, SGD with Nesterov momentum"),
       outer_row<&plan::OuterStep::momentum>("--outer-momentum",
                                             "diloco: momentum of the outer optimiser; 0: none"),
       with("micro_batches", Changes::Plan, own_micro_batches())});
}

}  // namespace

Named named_teams(std::optional<int>& tensor) {
  const auto set = [&tensor](const std::string& text) {
    if (text == "auto") return tensor.reset();
    int members = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), members);
    if (error != std::errc() || end != text.data() + text.size() || members < 1) {
      throw ConfigError(
          fmt::format("expected auto, or the members of each team, at least 1, found '{}'",
                      text.substr(0, 40)));
    }
    tensor = members;
  };
  return {.set = set, .text = [&tensor] { return tensor ? std::to_string(*tensor) : "auto"; }};
}

std::vector<Row> plan_rows() { return joined<R>({split_rows(), sync_rows()}); }

}  // namespace penstock::options
