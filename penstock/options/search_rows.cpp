// The options of `penstock plan` that choose among plans.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "penstock/options/sections.h"
#include "penstock/plan/sync_precision.h"
#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using OfSearch = SearchRequest;
using SearchRow = RowOf<SearchRequest>;
using planner::Choice;
using Options = planner::PlanOptions;

constexpr std::string_view kChoices[] = {"never", "auto", "always"};

Choice parse_choice(const std::string& name) {
  for (const Choice choice : {Choice::Never, Choice::Auto, Choice::Always})
    if (name == kChoices[static_cast<size_t>(choice)]) return choice;
  throw ConfigError(
      fmt::format("unknown choice '{}', expected never, always or auto", name.substr(0, 40)));
}

template <Choice Options::*Member>
SearchRow choice_row(std::string_view name, std::string help) {
  const auto slot = [](OfSearch& r) -> Slot {
    return named(r.plan.*Member, parse_choice,
                 [](Choice choice) { return kChoices[static_cast<size_t>(choice)]; });
  };
  return row<OfSearch>(name, slot, std::move(help));
}

Slot searched_sync(OfSearch& request) {
  return named(request.plan.sync, plan::parse_sync_choice,
               [](const std::optional<plan::SyncMethod>& sync) {
                 return sync ? to_string(*sync) : std::string("auto");
               });
}

Slot searched_compensation(OfSearch& request) {
  return named(request.plan.compensation, plan::parse_compensation,
               [](plan::Compensation compensation) { return to_string(compensation); });
}

Slot searched_boundary(OfSearch& request) {
  return named(request.plan.boundary, plan::parse_boundary_choice,
               [](const auto& coding) { return boundary_name(coding); });
}

Slot searched_precision(OfSearch& request) {
  return named(request.plan.gradient_precision, plan::parse_sync_precision,
               [](FloatType type) { return to_string(type); });
}

/// Of a model that no profile knows yet.
std::vector<SearchRow> listed_model_rows() {
  std::vector<SearchRow> rows = model_rows<OfSearch>(/*is_required=*/false);
  rows.front().help =
      "With --machines, instead of --profile: the model, whose costs are estimated. " +
      rows.front().help;
  for (SearchRow& row : sample_rows<OfSearch>()) rows.push_back(std::move(row));
  for (SearchRow& row : program_rows<OfSearch>()) rows.push_back(std::move(row));
  return in<OfSearch>(Section::Model, std::move(rows));
}

std::vector<SearchRow> kind_rows() {
  return in<OfSearch>(
      Section::Plan,
      {strategy_row<OfSearch>("auto, or " + plan::names_of(plan::training_strategies())),
       weights_row<OfSearch>(),
       row<OfSearch>("--compensate", searched_compensation, kCompensateHelp),
       row<OfSearch>(
           "--sync", searched_sync,
           "How replicas sum their gradients: ordered (with the bits of one thread), ring, "
           "parameter-server, summation, hierarchical (first inside each machine), asynchronous or "
           "auto, which is the fastest of those before asynchronous. diloco:H sums changes of "
           "weights every H steps, powersgd:R factors of rank R. ring and hierarchical change "
           "results by rounding"),
       row<OfSearch>("--sync-precision", searched_precision, std::string(kSyncPrecisionHelp)),
       row<OfSearch>("--boundary", searched_boundary, std::string(kBoundaryHelp)),
       choice_row<&Options::recompute>(
           "--recompute",
           "Recompute activations instead of keeping them: never, always, auto (only if memory "
           "requires it)"),
       choice_row<&Options::offload>(
           "--offload",
           "Move activations to the memory of the host and back instead of keeping them, on "
           "devices with a host_bandwidth: never, always, auto (instead of recomputing, where it "
           "is faster)"),
       choice_row<&Options::shard_optimizer>(
           "--shard-optimizer",
           "Share out the optimiser's state over the replicas of a stage (ZeRO-1): never, always, "
           "auto (only if memory requires it)"),
       tensor_row<OfSearch>(),
       choice_row<&Options::sequence>(
           "--sequence-parallel",
           "Teams share out the places of sequences between layers with parts of weights: never, "
           "always, auto (only if memory requires it)"),
       row<OfSearch>(
           "--optimizer", [](OfSearch& r) -> Slot { return named_optimizer(r.optimizer); },
           optimizer_help() + ": the optimiser whose state takes memory")});
}

std::vector<SearchRow> size_rows() {
  return in<OfSearch>(
      Section::Plan,
      {micro_batches_row<OfSearch>("chosen", /*least=*/-kNoBound),
       row<&OfSearch::plan, &Options::mini_batch>(
           "--mini-batch", "Maximum samples per optimiser step (default: no maximum)"),
       chunks_row<OfSearch>("chosen from 2, 3 and 4"),
       slack_row<OfSearch>("chosen from 1, 2, 4, 8"),
       keep_row<OfSearch>("2p-1 and 2p, less where memory asks for it"),
       row<&OfSearch::plan, &Options::gradient_groups>(
           "--gradient-groups",
           "Groups in which plans that flush sum gradients, at least (train has the same option): "
           "each takes memory (default: one per replica is counted)"),
       row<&OfSearch::plan, &Options::straight>("--straight", "One worker per stage"),
       row<&OfSearch::plan, &Options::use_all_workers>("--all-workers", "Use all workers")});
}

/// Those of a plan that is only priced, too.
std::vector<SearchRow> search_run_rows() {
  return in<OfSearch>(
      Section::Run,
      {row<OfSearch>(
           "--time-limit", [](OfSearch& r) -> Slot { return &r.time_limit; },
           "End the search after this time with the best plan found and its gap, e.g. 1min; 0: "
           "search to the end. Pricing may take 2 s more, --what-if as long again"),
       row<OfSearch>(
           "--memory-budget", [](OfSearch& r) -> Slot { return &r.memory_budget; },
           "Memory of this process that the search may take, beside 200 MB for simulations, e.g. "
           "4GiB; 0: no limit (that of the workers is --memory-limit). Where it is met, the best "
           "plan found, its gap and the strategies cut short"),
       row<&OfSearch::plan, &Options::global_norm>(
           "--norm", "Wait for the global gradient norm before each step (for clipping)")});
}

}  // namespace

template <>
std::span<const SearchRow> rows_of() {
  static const std::vector<SearchRow> kRows =
      joined<OfSearch>({listed_model_rows(), kind_rows(), size_rows(), search_run_rows()});
  return kRows;
}

}  // namespace penstock::options
