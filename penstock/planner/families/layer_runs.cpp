#include "penstock/planner/families/layer_runs.h"

#include <algorithm>
#include <cmath>

#include "penstock/util/check.h"

namespace penstock::planner {

namespace {

std::vector<LayerId> own_order(const Context& context) {
  const int32_t layers = context.profile.graph.num_layers();
  std::vector<LayerId> order;
  order.reserve(static_cast<size_t>(layers));
  for (int32_t l = 0; l < layers; ++l) order.push_back(LayerId{l});
  return order;
}

}  // namespace

LayerRuns::LayerRuns(const Context& context) : LayerRuns(context, own_order(context)) {}

LayerRuns::LayerRuns(const Context& context, std::vector<LayerId> order)
    : order_(std::move(order)),
      compute_ns_{0},
      forward_ns_{0},
      step_ns_{0},
      weight_bytes_{0},
      stash_bytes_{0},
      cut_bytes_(context.layers.size() + 1, 0) {
  // per layer and output: a position
  std::vector<std::vector<int>> last_reader(context.layers.size());
  for (const LayerId id : order_) {
    const PlannedLayer& layer = context.layers[id.index()];
    compute_ns_.push_back(compute_ns_.back() + layer.compute_ns);
    forward_ns_.push_back(forward_ns_.back() + layer.forward_ns);
    step_ns_.push_back(step_ns_.back() + layer.step_ns);
    weight_bytes_.push_back(weight_bytes_.back() + layer.weight_bytes);
    stash_bytes_.push_back(stash_bytes_.back() + layer.stash_bytes);
    last_reader[id.index()].assign(layer.output_bytes.size(), -1);
  }
  for (size_t position = 0; position < order_.size(); ++position) {
    for (const graph::ValueRef& input : context.profile.graph.layer(order_[position]).inputs) {
      if (!input.is_model_input())
        last_reader[input.layer.index()][static_cast<size_t>(input.output)] =
            static_cast<int>(position);
    }
  }
  // A value enters the cut after its layer and leaves it after its last reader.
  for (size_t position = 0; position < order_.size(); ++position) {
    const size_t layer = order_[position].index();
    for (size_t o = 0; o < last_reader[layer].size(); ++o) {
      if (last_reader[layer][o] < 0) continue;
      cut_bytes_[position + 1] += context.layers[layer].output_bytes[o];
      cut_bytes_[static_cast<size_t>(last_reader[layer][o]) + 1] -=
          context.layers[layer].output_bytes[o];
    }
  }
  for (size_t end = 1; end < cut_bytes_.size(); ++end) cut_bytes_[end] += cut_bytes_[end - 1];
}

// The ends of runs that are filled up to the limit one after another; no more than `parts`, the
// last of which may fall short of the end.
std::vector<int> LayerRuns::filled(int begin, int parts, int64_t limit_ns) const {
  std::vector<int> ends;
  while (begin < num_layers() && static_cast<int>(ends.size()) < parts) {
    const int64_t most = compute_ns_[static_cast<size_t>(begin)] + limit_ns;
    const auto past = std::upper_bound(compute_ns_.begin() + begin + 1, compute_ns_.end(), most);
    const int end = static_cast<int>(past - compute_ns_.begin()) - 1;
    if (end == begin) break;
    ends.push_back(end);
    begin = end;
  }
  return ends;
}

std::vector<int> LayerRuns::balanced(int begin, int parts) const {
  PENSTOCK_CHECK(parts >= 1 && parts <= num_layers() - begin, parts, begin, num_layers());
  int64_t low = -1;
  int64_t high = compute_ns(begin, num_layers());
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const std::vector<int> ends = filled(begin, parts, middle);
    if (!ends.empty() && ends.back() == num_layers()) {
      high = middle;
    } else {
      low = middle;
    }
  }
  std::vector<int> ends = filled(begin, parts, high);
  // Too few runs: cutting single layers off the end of long ones makes none larger.
  for (size_t k = ends.size(); k > 0 && static_cast<int>(ends.size()) < parts; --k) {
    const int run_begin = k == 1 ? begin : ends[k - 2];
    const int missing =
        std::min(parts - static_cast<int>(ends.size()), ends[k - 1] - run_begin - 1);
    std::vector<int> extra;
    for (int i = missing; i >= 1; --i) extra.push_back(ends[k - 1] - i);
    ends.insert(ends.begin() + static_cast<std::ptrdiff_t>(k) - 1, extra.begin(), extra.end());
  }
  return ends;
}

std::vector<int> LayerRuns::cheapest(int parts, const std::vector<double>& cut_ns) const {
  const int n = num_layers();
  PENSTOCK_CHECK(parts >= 1 && parts <= n && static_cast<int>(cut_ns.size()) == n + 1, parts, n,
                 cut_ns.size());
  const auto at = [](int position) { return static_cast<size_t>(position); };
  const auto run_ns = [&](int begin, int end) {
    return static_cast<double>(compute_ns(begin, end)) + static_cast<double>(step_ns(begin, end));
  };
  // Of the first `end` layers in k runs: the least time, and where the last run begins.
  std::vector<double> best(at(n) + 1, HUGE_VAL);
  best[0] = 0;
  std::vector<std::vector<int32_t>> begins(at(parts), std::vector<int32_t>(at(n) + 1, 0));
  for (int k = 0; k < parts; ++k) {
    std::vector<double> next(best.size(), HUGE_VAL);
    for (int end = k + 1; end <= n - (parts - 1 - k); ++end) {
      for (int begin = end - 1; begin >= k; --begin) {
        const double time = run_ns(begin, end);
        if (time >= next[at(end)]) break;
        const double slowest =
            std::max({best[at(begin)], time, begin > 0 ? cut_ns[at(begin)] : 0.0});
        if (slowest >= next[at(end)]) continue;
        next[at(end)] = slowest;
        begins[at(k)][at(end)] = begin;
      }
    }
    best = std::move(next);
  }
  std::vector<int> ends(at(parts));
  for (int k = parts - 1, end = n; k >= 0; end = begins[at(k)][at(end)], --k) ends[at(k)] = end;
  return ends;
}

}  // namespace penstock::planner
