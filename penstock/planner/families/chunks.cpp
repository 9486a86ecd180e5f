#include "penstock/planner/families/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "penstock/planner/families/chunk_cuts.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/placement.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

using plan::Strategy;

namespace {

constexpr int kMostChosenChunks = 4;

// c copies of a pipeline of p workers with v chunks each. For chimera two workers that face each
// other count as one with two chunks.
struct Layout {
  int copies = 1;
  int workers = 2;  ///< per copy
  int chunks = 2;
  std::vector<int> worker_of = {};  ///< per chunk
  std::vector<double> speeds = {};  ///< the slowest of all copies
  std::vector<int> worker_of_replica = {};
  int replicas = 1;

  int stages() const { return static_cast<int>(worker_of.size()); }
};

std::vector<int> chunk_counts(const Context& context, Strategy strategy) {
  if (!traits(strategy).takes_chunks()) return {2};
  if (context.options.chunks) return {static_cast<int>(*context.options.chunks)};
  std::vector<int> counts(kMostChosenChunks - 1);
  std::iota(counts.begin(), counts.end(), 2);
  return counts;
}

std::vector<int> copy_counts(const Context& context) {
  std::vector<int> counts;
  for (int c = 1; c <= context.workers / 2 && counts.size() < kMostCopies; ++c) {
    if (context.workers % c == 0) counts.push_back(c);
    if (context.options.straight) break;
  }
  return counts;
}

Layout layout_of(const Context& context, Strategy strategy, int copies, int workers, int chunks) {
  Layout layout{.copies = copies, .workers = workers, .chunks = chunks};
  const plan::Placement placement = traits(strategy).placement;
  const bool both_ways = placement == plan::Placement::Bidirectional;
  const int stages = both_ways ? workers : workers * chunks;
  const int holders = both_ways ? workers / 2 : workers;
  for (int s = 0; s < stages; ++s) {
    layout.worker_of.push_back(placement == plan::Placement::Loop ? s % workers
                                                                  : std::min(s, stages - 1 - s));
  }
  for (int w = 0; w < holders; ++w) {
    double speed = HUGE_VAL;
    for (int c = 0; c < copies; ++c) {
      speed = std::min(speed, context.speed({c * workers + w, 1}));
      if (both_ways) speed = std::min(speed, context.speed({(c + 1) * workers - 1 - w, 1}));
    }
    layout.speeds.push_back(speed);
  }
  layout.replicas = traits(strategy).replicas_per_copy() * copies;
  layout.worker_of_replica = schedule::placed(placement, stages, chunks, copies);
  return layout;
}

// Of the slowest worker per micro-batch of one copy, at least: all computation shared out, or the
// largest layer.
double least_ns(const Context& context, const Layout& layout) {
  int64_t all_ns = 0;
  int64_t largest_ns = 0;
  for (const PlannedLayer& layer : context.layers) {
    all_ns = saturating_add(all_ns, layer.compute_ns);
    largest_ns = std::max(largest_ns, layer.compute_ns);
  }
  const double speed = std::accumulate(layout.speeds.begin(), layout.speeds.end(), 0.0);
  return std::max(static_cast<double>(all_ns) / speed,
                  static_cast<double>(largest_ns) /
                      *std::max_element(layout.speeds.begin(), layout.speeds.end()));
}

class Cutter {
 public:
  Cutter(const Context& context, SplitFinder& finder, Strategy strategy, const Layout& layout)
      : context_(context),
        strategy_(strategy),
        layout_(layout),
        runs_(context, order_of(finder.straight_stages(layout.stages(), layout.workers))) {
    for (const auto& stage : finder.straight_stages(layout.stages(), layout.workers)) {
      straight_.push_back((straight_.empty() ? 0 : straight_.back()) +
                          static_cast<int>(stage.size()));
    }
    is_chain_ = finder.is_chain();
  }

  std::vector<ChunkedSplit> splits() {
    const double bound_ns = least_ns(context_, layout_);
    std::vector<std::vector<int>> cuts{improved_straight()};
    if (traits(strategy_).placement != plan::Placement::Loop) {
      const Fold fold = best_fold(runs_, layout_.speeds);
      if (is_chain_) chain_bound_ns_ = fold.bound_ns;
      if (!fold.ends.empty() && fold.ends != cuts[0] && fold.slowest_ns < slowest_ns(cuts[0]))
        cuts.push_back(fold.ends);
    }
    std::vector<ChunkedSplit> result;
    for (const std::vector<int>& ends : cuts) {
      const double slowest = slowest_ns(ends);
      const double bound = std::max(bound_ns, chain_bound_ns_);
      result.push_back({split_of(ends), slowest > bound ? 1 - bound / slowest : 0});
    }
    return result;
  }

 private:
  static std::vector<LayerId> order_of(const std::vector<std::vector<LayerId>>& stages) {
    std::vector<LayerId> order;
    for (const auto& stage : stages) order.insert(order.end(), stage.begin(), stage.end());
    return order;
  }

  double cut_ns(int position) const {
    return context_.model->cut_ns(runs_.cut_bytes(position),
                                  context_.topology().level_of({0, layout_.workers}));
  }
  double slowest_ns(const std::vector<int>& ends) const {
    return slowest_worker_ns(runs_, ends, layout_.worker_of, layout_.speeds);
  }

  // Cuts stay as cheap as the slowest part of the straight split lets them be.
  std::vector<int> improved_straight() const {
    double most_ns = slowest_ns(straight_);
    for (size_t c = 0; c + 1 < straight_.size(); ++c)
      most_ns = std::max(most_ns, cut_ns(straight_[c]));
    return improved(runs_, straight_, layout_.worker_of, layout_.speeds,
                    [&](int position) { return cut_ns(position) <= most_ns; });
  }

  Split split_of(const std::vector<int>& ends) const {
    Split split{strategy_, default_policy(strategy_), {}, {}, {}};
    int begin = 0;
    for (const int end : ends) {
      split.stages.emplace_back();
      for (int position = begin; position < end; ++position)
        split.stages.back().push_back(runs_.layer(position));
      std::sort(split.stages.back().begin(), split.stages.back().end());
      split.places.push_back(
          {static_cast<int>(split.places.size()) * layout_.replicas, layout_.replicas});
      begin = end;
    }
    split.recompute.assign(ends.size(), context_.recompute == Choice::Always);
    split.worker_of_replica = layout_.worker_of_replica;
    return split;
  }

  const Context& context_;
  const Strategy strategy_;
  const Layout& layout_;
  const LayerRuns runs_;
  std::vector<int> straight_;
  bool is_chain_ = false;
  double chain_bound_ns_ = 0;
};

// Workers of one copy, as many as the layers allow; 0 when they are too few.
int workers_of_copy(const Context& context, Strategy strategy, int copies, int chunks) {
  const int layers = context.profile.graph.num_layers();
  const int available = context.workers / copies;
  if (traits(strategy).placement == plan::Placement::Bidirectional) {
    const int even = std::min(available, layers) / 2 * 2;
    return even < 2 || (context.options.use_all_workers && even != available) ? 0 : even;
  }
  const int workers = std::min(available, layers / chunks);
  return workers < 2 || (context.options.use_all_workers && workers != available) ? 0 : workers;
}

}  // namespace

ChunkedSplits chunked_splits(const Context& context, SplitFinder& finder, Strategy strategy,
                             double faster_than_ns) {
  ChunkedSplits result;
  if (context.workers > kMostChunkedWorkers) {
    result.reason = fmt::format("workers with several stages are planned for up to {} workers",
                                kMostChunkedWorkers);
    return result;
  }
  for (const int chunks : chunk_counts(context, strategy)) {
    for (const int copies : copy_counts(context)) {
      const int workers = workers_of_copy(context, strategy, copies, chunks);
      if (workers == 0) continue;
      const Layout layout = layout_of(context, strategy, copies, workers, chunks);
      // For chimera a pair of workers shares the micro-batches.
      const double share = static_cast<double>(layout.replicas);
      if (faster_than_ns > 0 && least_ns(context, layout) / share >= faster_than_ns) continue;
      Cutter cutter(context, finder, strategy, layout);
      for (ChunkedSplit& split : cutter.splits()) result.splits.push_back(std::move(split));
    }
  }
  if (finder.straight_short_of_memory()) finder.note_short_of_memory(strategy);
  if (result.splits.empty()) {
    result.reason = traits(strategy).placement == plan::Placement::Bidirectional
                        ? "it takes an even number of workers and as many layers"
                        : "it takes at least two workers and two chunks of layers for each";
  }
  return result;
}

}  // namespace penstock::planner
