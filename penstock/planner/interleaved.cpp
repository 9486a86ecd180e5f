#include "penstock/planner/interleaved.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/planner/layer_runs.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/units.h"

namespace penstock::planner {

namespace {

constexpr int kMostChunks = 4;
constexpr int64_t kRoundsPerStep = 4;

// One choice of workers and chunks, summed up per worker.
struct Layout {
  int workers = 2;
  int chunks = 2;
  std::vector<int> ends = {};               ///< of the chunks
  std::vector<double> compute_ns = {};      ///< per worker and micro-batch
  std::vector<int64_t> weight_bytes = {};   ///< per worker
  std::vector<int64_t> largest_stash = {};  ///< per worker, of one chunk
  double slowest_link_ns = 0;
  double fill_ns = 0;  ///< messages that nothing hides
  double step_ns = 0;
};

Layout lay_out(const Context& context, const LayerRuns& runs, int workers, int chunks) {
  Layout layout{.workers = workers, .chunks = chunks, .ends = runs.balanced(0, workers * chunks)};
  const auto p = static_cast<size_t>(workers);
  layout.compute_ns.assign(p, 0);
  layout.weight_bytes.assign(p, 0);
  layout.largest_stash.assign(p, 0);
  std::vector<double> link_ns(p, 0);
  std::vector<double> worker_step_ns(p, 0);
  int begin = 0;
  for (size_t j = 0; j < layout.ends.size(); ++j) {
    const size_t w = j % p;
    const int end = layout.ends[j];
    const double speed = context.speed({static_cast<int>(w), 1});
    const int64_t again = context.recompute == Recompute::Always ? runs.forward_ns(begin, end) : 0;
    layout.compute_ns[w] += (static_cast<double>(runs.compute_ns(begin, end)) + static_cast<double>(again)) / speed;
    layout.weight_bytes[w] += runs.weight_bytes(begin, end);
    layout.largest_stash[w] = std::max(layout.largest_stash[w], runs.stash_bytes(begin, end));
    worker_step_ns[w] += static_cast<double>(runs.step_ns(begin, end)) / speed;
    if (j + 1 < layout.ends.size()) {
      const int next = static_cast<int>((w + 1) % p);
      const double ns = context.model->cut_ns(runs.cut_bytes(end), context.topology().level_between(static_cast<int>(w), next));
      link_ns[w] += ns;
      if (j + 1 < p) layout.fill_ns += ns;
    }
    begin = end;
  }
  layout.slowest_link_ns = *std::max_element(link_ns.begin(), link_ns.end());
  layout.step_ns = *std::max_element(worker_step_ns.begin(), worker_step_ns.end());
  return layout;
}

int64_t memory_bytes(const Context& context, const Layout& layout, int worker, int64_t micro_batches) {
  const auto w = static_cast<size_t>(worker);
  const int64_t p = layout.workers;
  const int64_t v = layout.chunks;
  const int64_t in_flight = std::min(saturating_mul(micro_batches, v), (v - 1) * p + 2 * (p - worker - 1) + 1);
  const double state = static_cast<double>(layout.weight_bytes[w]) * (2 + context.options.optimizer_state_per_weight);
  return saturating_add(state >= 9.2e18 ? INT64_MAX : static_cast<int64_t>(state), saturating_mul(in_flight, layout.largest_stash[w]));
}

std::vector<double> bytes_per_level(const Context& context, const LayerRuns& runs, const Layout& layout) {
  const cluster::Topology& topology = context.topology();
  std::vector<double> bytes(static_cast<size_t>(topology.num_levels()), 0);
  for (size_t j = 0; j + 1 < layout.ends.size(); ++j) {
    const int from = static_cast<int>(j) % layout.workers;
    const int level = topology.level_between(from, (from + 1) % layout.workers);
    for (int passed = 1; passed <= level; ++passed) {
      if (topology.unit_size(passed) == topology.unit_size(passed - 1)) continue;
      bytes[static_cast<size_t>(passed) - 1] +=
          2 * static_cast<double>(runs.cut_bytes(layout.ends[j])) / static_cast<double>(profile::samples_per_micro_batch(context.profile));
    }
  }
  return bytes;
}

plan::Alternative priced(const Context& context, const LayerRuns& runs, const Layout& layout, int64_t micro_batches) {
  const auto u = static_cast<double>(micro_batches);
  const double slowest_ns = *std::max_element(layout.compute_ns.begin(), layout.compute_ns.end());
  const double bubble_ns = (layout.workers - 1) * slowest_ns / layout.chunks;
  const double time_ns = std::max(1.0, u * std::max(slowest_ns, layout.slowest_link_ns) + bubble_ns + layout.fill_ns + layout.step_ns);
  double busy_ns = 0;
  for (const double ns : layout.compute_ns) busy_ns += ns * u;
  plan::Alternative result{.strategy = "interleaved", .config = fmt::format("{}x{} chunks", layout.workers, layout.chunks)};
  result.throughput_samples_per_s = u * static_cast<double>(profile::samples_per_micro_batch(context.profile)) * 1e9 / time_ns;
  result.weights = "flush";
  result.micro_batches = micro_batches;
  result.latency_ns = time_ns >= 9.2e18 ? INT64_MAX : std::llround(time_ns);
  for (int w = 0; w < layout.workers; ++w) {
    result.memory_bytes = std::max(result.memory_bytes, memory_bytes(context, layout, w, micro_batches));
  }
  result.idle_share = std::clamp(1 - busy_ns / (layout.workers * time_ns), 0.0, 1.0);
  result.bytes_per_sample = bytes_per_level(context, runs, layout);
  return result;
}

// Micro-batches come in rounds of one per worker.
int64_t micro_batches_of(const Context& context, int workers) {
  if (context.options.micro_batches > 0) return context.options.micro_batches;
  const int64_t most = std::min(context.most_micro_batches(), kMaxMicroBatchesPerStep);
  const int64_t wanted = context.options.mini_batch > 0 ? most : std::min(most, kRoundsPerStep * workers);
  return wanted / workers * workers;
}

}  // namespace

InterleavedResult interleaved(const Context& context) {
  const LayerRuns runs(context);
  InterleavedResult result{std::nullopt, "it takes at least two workers and two chunks of layers for each"};
  for (int chunks = 2; chunks <= kMostChunks; ++chunks) {
    const int workers = std::min(context.workers, runs.num_layers() / chunks);
    if (workers < 2) break;
    const int64_t micro_batches = micro_batches_of(context, workers);
    if (micro_batches < 1 || micro_batches % workers != 0) {
      result.reason = fmt::format("its steps have a multiple of {} micro-batches, one per worker", workers);
      continue;
    }
    plan::Alternative offer = priced(context, runs, lay_out(context, runs, workers, chunks), micro_batches);
    if (const int64_t limit = context.limit_bytes({0, workers}); limit > 0 && offer.memory_bytes > limit) {
      result.reason = fmt::format("it needs {} per worker", format_bytes(offer.memory_bytes));
      continue;
    }
    if (!result.best || offer.throughput_samples_per_s > result.best->throughput_samples_per_s) result.best = std::move(offer);
  }
  return result;
}

}  // namespace penstock::planner
