#include "penstock/plan/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/plural.h"

namespace penstock::plan {
namespace {

constexpr std::array kFlush = {WeightPolicy::Flush};
constexpr std::array kTwoBuffered = {WeightPolicy::TwoBuffered};
constexpr std::array kNoFlush = {WeightPolicy::Stash, WeightPolicy::VerticalSync,
                                 WeightPolicy::Latest};

constexpr std::array kOnline = {WeightPolicy::Current, WeightPolicy::Latest, WeightPolicy::Stash};

using Place = PipelinePlace;

/// No more than there is to run.
constexpr int64_t of_step(const Place& place, int64_t kept) {
  return place.micro_batches > 0 ? std::min(place.micro_batches, kept) : kept;
}

/// Micro-batches that go through all chunks together: p, or all of up to 2p - 1.
constexpr int64_t interleaved_group(const Place& place) {
  const int64_t p = place.workers;
  // Where copies share the micro-batches, some have one less.
  int64_t group = p;
  for (const int64_t m : {place.micro_batches - 1, place.micro_batches}) {
    if (m > p && m < 2 * p) group = m;
  }
  return group;
}

constexpr int64_t interleaved_kept(const Place& place) {
  return (place.chunks - 1) * interleaved_group(place) + 2 * (place.workers - 1 - place.rank) + 1;
}

// W lags behind so far that every stage holds as many as the first, which may have one worker.
constexpr int64_t first_depth(const Place& place) { return std::max(place.depth, place.workers); }

constexpr std::string_view kDrains = "the pipeline drains before every step";

constexpr std::array<StrategyTraits, kNumStrategies> kRows = {{
    {.strategy = Strategy::Serial,
     .name = "serial",
     .summary = "one worker, forward then backward",
     .policies = kFlush,
     .extent = Extent::OneWorker,
     .takes_streams = true,
     .in_flight = InFlight::One,
     .most_kept = [](const Place&) -> int64_t { return 1; },
     .in_short_list = true,
     .weakness = "one worker does everything"},

    {.strategy = Strategy::DataParallel,
     .name = "dp",
     .summary = "the whole model on every worker, gradients summed before each step",
     .policies = kFlush,
     .extent = Extent::OneStage,
     .in_flight = InFlight::One,
     .most_kept = [](const Place&) -> int64_t { return 1; },
     .in_short_list = true},

    {.strategy = Strategy::ModelParallel,
     .name = "mp",
     .summary = "the model cut into stages, one micro-batch in flight at a time",
     .policies = kFlush,
     .in_flight = InFlight::One,
     .most_kept = [](const Place&) -> int64_t { return 1; },
     .one_worker_per_stage = true,
     .in_short_list = true,
     .weakness = "only one micro-batch is under way at a time"},

    {.strategy = Strategy::Hybrid,
     .name = "hybrid",
     .summary = "the first layers data-parallel, the last ones a pipeline (Krizhevsky, 2014)",
     .runs_as = Strategy::OneFOneBFlush,
     .policies = kFlush,
     .in_flight = InFlight::Warmup,
     .most_kept = [](const Place& place) { return of_step(place, place.depth); },
     .weakness = "all wait for the last layers, and for each other at every step"},

    {.strategy = Strategy::GPipe,
     .name = "gpipe",
     .summary = "all forwards, then all backwards, then the step (Huang et al., NeurIPS 2019)",
     .policies = kFlush,
     .in_flight = InFlight::All,
     .most_kept = [](const Place& place) { return std::max<int64_t>(place.micro_batches, 1); },
     .one_worker_per_stage = true,
     .auto_may_choose = true,
     .in_short_list = true,
     .lighter = Strategy::OneFOneBFlush,
     .weakness = kDrains},

    {.strategy = Strategy::OneFOneB,
     .name = "1f1b",
     .summary = "one forward, one backward, no flush; replicas take turns (PipeDream, SOSP 2019)",
     .policies = kNoFlush,
     .in_flight = InFlight::Warmup,
     .most_kept = [](const Place& place) { return place.depth; },
     .in_short_list = true,
     .lighter = Strategy::OneFOneBFlush},

    {.strategy = Strategy::TwoBuffered,
     .name = "2bw",
     .summary = "one forward, one backward on double-buffered weights (PipeDream-2BW, ICML 2021)",
     .policies = kTwoBuffered,
     .in_flight = InFlight::Warmup,
     .most_kept = [](const Place& place) { return place.depth; },
     .lighter = Strategy::OneFOneBFlush},

    {.strategy = Strategy::OneFOneBFlush,
     .name = "1f1b-flush",
     .summary = "one forward, one backward, flushed before each step (PipeDream-Flush, ICML 2021)",
     .policies = kFlush,
     .in_flight = InFlight::Warmup,
     .most_kept = [](const Place& place) { return of_step(place, place.depth); },
     .auto_may_choose = true,
     .in_short_list = true,
     .weakness = kDrains},

    {.strategy = Strategy::EagerOneFOneB,
     .name = "eager-1f1b",
     .summary = "1f1b-flush with more micro-batches in flight, to hide latency (JaxPP, 2024)",
     .policies = kFlush,
     .takes_slack = true,
     .in_flight = InFlight::Warmup,
     .most_kept =
         [](const Place& place) {
           // At most as many stages follow as workers do.
           return of_step(place,
                          saturating_add(place.depth, saturating_mul(place.slack, place.behind)));
         },
     .auto_may_choose = true,
     .split_by_simulation = true,
     .lighter = Strategy::OneFOneBFlush,
     .weakness = kDrains},

    {.strategy = Strategy::Interleaved,
     .name = "interleaved",
     .summary = "1f1b-flush with several stages per worker (Megatron-LM, SC 2021)",
     .policies = kFlush,
     .placement = Placement::Loop,
     .chunks = 2,
     .most_kept = interleaved_kept,
     .auto_may_choose = true,
     .split_by_simulation = true,
     .weakness = "the pipeline drains before every step, and messages are several times as many"},

    {.strategy = Strategy::InterleavedZb,
     .name = "interleaved-zb",
     .summary =
         "interleaved with backward split in two to fill the bubble (after Zero Bubble, ICLR "
         "2024)",
     .policies = kFlush,
     .splits_backward = true,
     .placement = Placement::Loop,
     .chunks = 2,
     // Worker r delays W by r backwards.
     .most_kept = [](const Place& place) { return interleaved_kept(place) + place.rank; },
     .auto_may_choose = true,
     .split_by_simulation = true,
     .weakness = "messages are several times as many"},

    {.strategy = Strategy::ZbH1,
     .name = "zb-h1",
     .summary = "backward split in two to fill the bubble, with 1F1B's memory (Zero Bubble, ICLR "
                "2024)",
     .policies = kFlush,
     .splits_backward = true,
     .most_kept = [](const Place& place) { return of_step(place, first_depth(place)); },
     .auto_may_choose = true,
     .split_by_simulation = true,
     .lighter = Strategy::OneFOneBFlush},

    {.strategy = Strategy::ZbH2,
     .name = "zb-h2",
     .summary = "the same with twice the memory and hardly a bubble (Zero Bubble, ICLR 2024)",
     .policies = kFlush,
     .splits_backward = true,
     .most_kept = [](const Place& place) { return of_step(place, 2 * first_depth(place) - 1); },
     .auto_may_choose = true,
     .split_by_simulation = true,
     .lighter = Strategy::ZbH1},

    {.strategy = Strategy::ZbAuto,
     .name = "zb-auto",
     .summary = "split backward in the order that costs, links and memory ask for (after Zero "
                "Bubble, ICLR 2024)",
     .policies = kFlush,
     .splits_backward = true,
     .takes_keep = true,
     .most_kept =
         [](const Place& place) {
           return of_step(place, place.keep > 0 ? place.keep : 2 * place.workers - 1);
         },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::ZbV,
     .name = "zb-v",
     .summary = "split backward, two stages per worker in a V (Qi et al., NeurIPS 2024)",
     .policies = kFlush,
     .splits_backward = true,
     .placement = Placement::V,
     .chunks = 2,
     .most_kept = [](const Place& place) { return 2 * place.workers; },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::VHalf,
     .name = "v-half",
     .summary = "zb-v with floor(p/2 + 1) of its p activations, some bubble (NeurIPS 2024)",
     .policies = kFlush,
     .splits_backward = true,
     .placement = Placement::V,
     .chunks = 2,
     .most_kept = [](const Place& place) { return 2 * (place.workers / 2 + 1); },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::VMin,
     .name = "v-min",
     .summary = "zb-v with floor((p+4)/3) of its p activations, more bubble (NeurIPS 2024)",
     .policies = kFlush,
     .splits_backward = true,
     .placement = Placement::V,
     .chunks = 2,
     .most_kept = [](const Place& place) { return 2 * ((place.workers + 4) / 3); },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::ZbAutoV,
     .name = "zb-auto-v",
     .summary = "zb-auto over two stages per worker in a V (after Qi et al., NeurIPS 2024)",
     .policies = kFlush,
     .splits_backward = true,
     .placement = Placement::V,
     .chunks = 2,
     .takes_keep = true,
     .most_kept =
         [](const Place& place) { return place.keep > 0 ? place.keep : 2 * place.workers; },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::DualPipeV,
     .name = "dualpipe-v",
     .summary = "two stages per worker in a V, forwards paired with backwards (DeepSeek, 2025)",
     .policies = kFlush,
     .splits_backward = true,
     .placement = Placement::V,
     .chunks = 2,
     .most_kept = [](const Place& place) { return 2 * place.workers + 1; },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::DualPipe,
     .name = "dualpipe",
     .summary = "two pipelines in opposite directions, forwards run together with backwards "
                "(DeepSeek, 2025)",
     .policies = kFlush,
     .splits_backward = true,
     .placement = Placement::Bidirectional,
     .most_kept = [](const Place& place) { return place.workers + 1; },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::Chimera,
     .name = "chimera",
     .summary =
         "two pipelines in opposite directions over the same workers (Li and Hoefler, SC 2021)",
     .policies = kFlush,
     .placement = Placement::Bidirectional,
     .most_kept = [](const Place& place) { return place.workers; },
     .auto_may_choose = true,
     .split_by_simulation = true},

    {.strategy = Strategy::Online,
     .name = "online",
     .summary = "every stage on another frame, forward and backward per tick (PARTIME, ICMLA 2022)",
     .policies = kOnline,
     .slack = 1,
     .takes_streams = true,
     .in_flight = InFlight::Warmup,
     .most_kept = [](const Place& place) -> int64_t {
       return place.newest_only ? 1 : saturating_add(place.depth, place.behind);
     },
     .one_worker_per_stage = true,
     .weakness = "gradients are up to 2(S-1) frames old: for streams, whose frames change slowly"},

    {.strategy = Strategy::ForwardOnly,
     .name = "forward-only",
     .summary = "forwards alone, for evaluation",
     .trains = false,
     .policies = kFlush,
     .in_flight = InFlight::All,
     .most_kept = [](const Place&) -> int64_t { return 0; }},
}};

constexpr bool rows_stand_at_their_enumerators() {
  for (size_t i = 0; i < kNumStrategies; ++i) {
    if (kRows[i].strategy != static_cast<Strategy>(i) || kRows[i].name.empty()) return false;
  }
  return true;
}
static_assert(rows_stand_at_their_enumerators());

std::optional<Strategy> find_among(std::span<const Strategy> strategies, std::string_view name) {
  for (const Strategy strategy : strategies) {
    if (traits(strategy).name == name) return strategy;
  }
  return std::nullopt;
}

constexpr std::string_view kAuto = "auto";

}  // namespace

const StrategyTraits& traits(Strategy strategy) { return kRows[static_cast<size_t>(strategy)]; }

std::ostream& operator<<(std::ostream& out, Strategy strategy) {
  return out << to_string(strategy);
}

bool supports(Strategy strategy, WeightPolicy policy) {
  const auto& policies = traits(strategy).policies;
  return std::find(policies.begin(), policies.end(), policy) != policies.end();
}

std::vector<Strategy> strategies_where(bool (*choose)(const StrategyTraits& row)) {
  std::vector<Strategy> found;
  for (const StrategyTraits& row : kRows) {
    if (choose(row)) found.push_back(row.strategy);
  }
  return found;
}

std::span<const Strategy> scheduled_strategies() {
  static const std::vector<Strategy> kAll =
      strategies_where([](const StrategyTraits& row) { return row.runs_as == row.strategy; });
  return kAll;
}

std::span<const Strategy> training_strategies() {
  static const std::vector<Strategy> kAll =
      strategies_where([](const StrategyTraits& row) { return row.trains; });
  return kAll;
}

std::string names_of(std::span<const Strategy> strategies) {
  std::string names;
  for (const Strategy strategy : strategies) {
    names += names.empty() ? "" : ", ";
    names += to_string(strategy);
  }
  return names;
}

std::optional<Strategy> find_strategy(std::string_view name) {
  for (const StrategyTraits& row : kRows) {
    if (row.name == name) return row.strategy;
  }
  return std::nullopt;
}

Strategy parse_scheduled_strategy(std::string_view name) {
  if (const auto found = find_among(scheduled_strategies(), name)) return *found;
  throw ConfigError(fmt::format("unknown schedule '{}', expected one of {}", name.substr(0, 40),
                                names_of(scheduled_strategies())));
}

std::optional<Strategy> parse_strategy_choice(std::string_view name) {
  if (name == kAuto) return std::nullopt;
  if (const auto found = find_among(training_strategies(), name)) return found;
  throw ConfigError(fmt::format("unknown strategy '{}', expected one of {}, {}", name.substr(0, 40),
                                kAuto, names_of(training_strategies())));
}

std::string_view to_string(std::optional<Strategy> choice) {
  return choice ? to_string(*choice) : kAuto;
}

std::string keep_refusal(const StrategyTraits& row, int64_t keep) {
  if (keep == 0) return "";
  if (!row.takes_keep) {
    const auto takers = strategies_where([](const auto& other) { return other.takes_keep; });
    return fmt::format("only these schedules keep what is asked for: {}; found {} for {}",
                       names_of(takers), keep, row.name);
  }
  if (keep >= row.chunks) return "";
  return fmt::format(
      "a worker of schedule {} keeps at least {}, one for each of its stages, found {}", row.name,
      plural(row.chunks, "micro-batch"), keep);
}

void check_schedule_options(std::optional<Strategy> choice, std::optional<int64_t> chunks,
                            std::optional<int64_t> slack, std::optional<int64_t> keep) {
  const auto only = [&](std::string_view what, bool (*takes)(const StrategyTraits&),
                        int64_t found) {
    return ConfigError(fmt::format("only strategy {} {}, found {} for {}",
                                   names_of(strategies_where(takes)), what, found,
                                   to_string(choice)));
  };
  if (chunks && choice && !traits(*choice).takes_chunks() && *chunks != traits(*choice).chunks) {
    throw only(
        "has a choice of chunks", [](const auto& row) { return row.takes_chunks(); }, *chunks);
  }
  if (chunks && (!choice || traits(*choice).takes_chunks()) &&
      (*chunks < kMinChunks || *chunks > kMaxChunks)) {
    throw ConfigError(fmt::format("chunks must lie between {} and {}, found {}", kMinChunks,
                                  kMaxChunks, *chunks));
  }
  if (slack && choice && !traits(*choice).takes_slack)
    throw only(
        "has slack", [](const auto& row) { return row.takes_slack; }, *slack);
  if (slack && (*slack < 0 || *slack > kMaxSlack)) {
    throw ConfigError(fmt::format("slack must lie between 0 and {}, found {}", kMaxSlack, *slack));
  }
  if (keep && choice && !traits(*choice).takes_keep)
    throw only(
        "has a choice of what to keep", [](const auto& row) { return row.takes_keep; }, *keep);
  if (keep && (*keep < 1 || *keep > kMaxKeep))
    throw ConfigError(fmt::format("keep must lie between 1 and {}, found {}", kMaxKeep, *keep));
}

}  // namespace penstock::plan
