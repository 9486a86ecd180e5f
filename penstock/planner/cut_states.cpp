#include "penstock/planner/cut_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "penstock/planner/planner.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

constexpr int64_t kLargestTotal = int64_t{1} << 62;

[[noreturn]] void fail_too_many(const std::string& where) {
  throw ConfigError(
      fmt::format("the model has more than {} cut states (sets of layers that a stage boundary may follow){}; merge the layers of parallel "
                  "branches into "
                  "one layer each, so that fewer of them can be cut independently",
                  kMaxCutStates, where));
}

}  // namespace

void check_totals(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers) {
  PENSTOCK_CHECK(layers.size() == static_cast<size_t>(graph.num_layers()), layers.size(), graph.num_layers());
  int64_t time_ns = 0;
  int64_t bytes = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    time_ns = saturating_add(time_ns, saturating_add(layers[l].compute_ns, layers[l].step_ns));
    bytes = saturating_add(bytes, saturating_add(layers[l].weight_bytes, layers[l].stash_bytes));
    for (const int64_t output : layers[l].output_bytes) bytes = saturating_add(bytes, output);
    if (time_ns > kLargestTotal || bytes > kLargestTotal) {
      throw ConfigError(fmt::format("the profile's {} add up to more than 2^62 at layer '{}'",
                                    time_ns > kLargestTotal ? "times (ns)" : "sizes (bytes)", graph.layers()[l].name));
    }
  }
}

// Depth-first over downsets: a set is reached from itself without its last layer (which, ids being topological, nothing in it depends on),
// so each is met exactly once and no table of seen sets is needed. Sums, open values and the layers that may come next are kept along the
// path.
class CutEnumeration {
 public:
  CutEnumeration(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers, CutStates& states)
      : graph_(graph), layers_(layers), states_(states) {
    const auto n = static_cast<size_t>(graph.num_layers());
    inputs_.resize(n);
    missing_.resize(n);
    readers_left_.resize(n);
    for (size_t l = 0; l < n; ++l) {
      readers_left_[l].assign(layers[l].output_bytes.size(), 0);
      missing_[l] = static_cast<int>(graph.predecessors(LayerId{static_cast<int32_t>(l)}).size());
      inputs_[l] = graph.layers()[l].inputs;
      std::sort(inputs_[l].begin(), inputs_[l].end());
      inputs_[l].erase(std::unique(inputs_[l].begin(), inputs_[l].end()), inputs_[l].end());
      for (const graph::ValueRef& input : inputs_[l]) {
        if (!input.is_model_input()) ++readers_left_[input.layer.index()][static_cast<size_t>(input.output)];
      }
    }
    current_.assign(states.words_, 0);
  }

  void run() {
    Frame root;
    for (size_t l = 0; l < missing_.size(); ++l) {
      if (missing_[l] == 0) root.ready.push_back(static_cast<int>(l));
      check_width(root.ready);
    }
    emit();
    stack_.push_back(std::move(root));
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next == frame.ready.size()) {
        if (frame.layer >= 0) remove(frame.layer);
        stack_.pop_back();
        continue;
      }
      Frame child = child_of(frame, frame.next++);
      emit();
      stack_.push_back(std::move(child));
    }
  }

 private:
  struct Frame {
    int layer = -1;          ///< added last, -1 for the empty set
    std::vector<int> ready;  ///< layers after `layer` whose predecessors are all in the set, ascending
    size_t next = 0;
  };

  // k layers that may each be in or out make 2^k states: refuse before listing them.
  void check_width(const std::vector<int>& ready) const {
    if (ready.size() < 63 && (int64_t{1} << ready.size()) <= kMaxCutStates) return;
    fail_too_many(fmt::format(": {} or more layers, '{}' and '{}' among them, do not depend on each other", ready.size(),
                              graph_.layers()[static_cast<size_t>(ready[0])].name, graph_.layers()[static_cast<size_t>(ready[1])].name));
  }

  Frame child_of(const Frame& frame, size_t position) {
    Frame child;
    child.layer = frame.ready[position];
    child.ready.assign(frame.ready.begin() + static_cast<std::ptrdiff_t>(position) + 1, frame.ready.end());
    add(child.layer);
    for (const LayerId successor : graph_.successors(LayerId{child.layer})) {
      if (missing_[successor.index()] == 0) child.ready.push_back(successor.value);
      check_width(child.ready);
    }
    std::sort(child.ready.begin(), child.ready.end());
    return child;
  }

  void add(int layer) { change(layer, +1); }
  void remove(int layer) { change(layer, -1); }

  void change(int layer, int sign) {
    const auto l = static_cast<size_t>(layer);
    const PlannedLayer& cost = layers_[l];
    current_[l / 64] ^= uint64_t{1} << (l % 64);
    count_ += sign;
    sums_.compute_ns += sign * cost.compute_ns;
    sums_.step_ns += sign * cost.step_ns;
    sums_.weight_bytes += sign * cost.weight_bytes;
    sums_.stash_bytes += sign * cost.stash_bytes;
    for (size_t o = 0; o < cost.output_bytes.size(); ++o) {
      if (readers_left_[l][o] > 0) cut_bytes_ += sign * cost.output_bytes[o];
    }
    for (const graph::ValueRef& input : inputs_[l]) {
      if (input.is_model_input()) continue;
      int& left = readers_left_[input.layer.index()][static_cast<size_t>(input.output)];
      const bool was_open = left > 0;
      left -= sign;
      if (was_open != (left > 0)) cut_bytes_ -= sign * layers_[input.layer.index()].output_bytes[static_cast<size_t>(input.output)];
    }
    for (const LayerId successor : graph_.successors(LayerId{layer})) missing_[successor.index()] -= sign;
  }

  void emit() {
    if (static_cast<int64_t>(states_.sums_.size()) == kMaxCutStates) fail_too_many("");
    states_.bits_.insert(states_.bits_.end(), current_.begin(), current_.end());
    states_.counts_.push_back(count_);
    states_.sums_.push_back(sums_);
    states_.cut_bytes_.push_back(cut_bytes_);
  }

  const graph::ModelGraph& graph_;
  const std::vector<PlannedLayer>& layers_;
  CutStates& states_;
  std::vector<std::vector<graph::ValueRef>> inputs_;  ///< distinct, per layer
  std::vector<int> missing_;                          ///< predecessors not yet in the set, per layer
  std::vector<std::vector<int>> readers_left_;        ///< layers outside the set that read each output
  std::vector<uint64_t> current_;
  int32_t count_ = 0;
  LayerSums sums_;
  int64_t cut_bytes_ = 0;
  std::vector<Frame> stack_;
};

CutStates::CutStates(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers)
    : num_layers_(graph.num_layers()), words_((layers.size() + 63) / 64) {
  check_totals(graph, layers);
  // A graph of n layers has at least n + 1 states.
  if (num_layers_ >= kMaxCutStates) fail_too_many(fmt::format(": it has {} layers", num_layers_));
  CutEnumeration(graph, layers, *this).run();

  // By size, then by content: subsets come first, and the order does not depend on how states were found.
  std::vector<int32_t> order(sums_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto bits = [this](int32_t state) { return bits_.begin() + static_cast<std::ptrdiff_t>(words_ * static_cast<size_t>(state)); };
  const auto words = static_cast<std::ptrdiff_t>(words_);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    if (counts_[static_cast<size_t>(a)] != counts_[static_cast<size_t>(b)])
      return counts_[static_cast<size_t>(a)] < counts_[static_cast<size_t>(b)];
    return std::lexicographical_compare(bits(a), bits(a) + words, bits(b), bits(b) + words);
  });
  CutStates sorted = *this;
  for (size_t s = 0; s < order.size(); ++s) {
    const auto from = static_cast<size_t>(order[s]);
    std::copy_n(bits_.begin() + static_cast<std::ptrdiff_t>(words_ * from), words,
                sorted.bits_.begin() + static_cast<std::ptrdiff_t>(words_ * s));
    sorted.counts_[s] = counts_[from];
    sorted.sums_[s] = sums_[from];
    sorted.cut_bytes_[s] = cut_bytes_[from];
  }
  *this = std::move(sorted);
  for (int s = 0; s < size(); ++s) {
    const uint64_t* const begin = bits_.data() + words_ * static_cast<size_t>(s);
    first_gap_.push_back(static_cast<int32_t>(std::find_if(begin, begin + words_, [](uint64_t w) { return w != ~uint64_t{0}; }) - begin));
    int32_t end = static_cast<int32_t>(words_);
    while (end > 0 && begin[end - 1] == 0) --end;
    end_.push_back(end);
  }
}

bool CutStates::nested(int small, int large) const {
  const auto a = static_cast<size_t>(small);
  const auto b = static_cast<size_t>(large);
  if (counts_[a] >= counts_[b] || first_gap_[a] > first_gap_[b] || end_[a] > end_[b]) return false;
  const uint64_t* const small_bits = bits_.data() + words_ * a;
  const uint64_t* const large_bits = bits_.data() + words_ * b;
  for (auto w = static_cast<size_t>(first_gap_[a]); w < static_cast<size_t>(end_[a]); ++w) {
    if ((small_bits[w] & ~large_bits[w]) != 0) return false;
  }
  return true;
}

bool CutStates::contains(int state, LayerId layer) const {
  return (bits_[words_ * static_cast<size_t>(state) + layer.index() / 64] >> (layer.index() % 64) & 1) != 0;
}

LayerSums CutStates::between(int small, int large) const {
  const LayerSums& a = sums(small);
  const LayerSums& b = sums(large);
  return {b.compute_ns - a.compute_ns, b.step_ns - a.step_ns, b.weight_bytes - a.weight_bytes, b.stash_bytes - a.stash_bytes};
}

SegmentCost CutStates::segment(int small, int large) const {
  const LayerSums sums = between(small, large);
  return {sums.compute_ns, sums.step_ns, sums.weight_bytes};
}

}  // namespace penstock::planner
