#include "penstock/planner/cuts/cut_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "penstock/planner/cuts/cut_cursor.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

constexpr int64_t kLargestTotal = int64_t{1} << 62;

}  // namespace

void check_totals(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers) {
  PENSTOCK_CHECK(layers.size() == static_cast<size_t>(graph.num_layers()), layers.size(),
                 graph.num_layers());
  int64_t time_ns = 0;
  int64_t bytes = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    // A stage that recomputes runs its forward pass twice.
    time_ns = saturating_add(
        time_ns, saturating_add(saturating_add(layers[l].forward_ns, layers[l].compute_ns),
                                saturating_add(layers[l].accumulate_ns, layers[l].step_ns)));
    bytes = saturating_add(bytes, saturating_add(layers[l].weight_bytes, layers[l].stash_bytes));
    for (const int64_t output : layers[l].output_bytes) bytes = saturating_add(bytes, output);
    if (time_ns > kLargestTotal || bytes > kLargestTotal) {
      throw ConfigError(fmt::format("the profile's {} add up to more than 2^62 at layer '{}'",
                                    time_ns > kLargestTotal ? "times (ns)" : "sizes (bytes)",
                                    graph.layers()[l].name));
    }
  }
}

namespace {

// Depth-first over downsets: a set is reached from itself without its last layer (which, ids being
// topological, nothing in it depends on), so each is met exactly once and no table of seen sets is
// needed. The layers that may come next are kept along the path.
class CutEnumeration {
 public:
  CutEnumeration(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers,
                 int64_t most)
      : graph_(graph), most_(most), cursor_(graph, layers) {}

  /// Calls emit(cursor) for every downset. When there are more than `most`, stops early and returns
  /// what there is to say about it.
  template <typename Emit>
  std::optional<std::string> run(const Emit& emit) {
    // A graph of n layers has at least n + 1.
    if (graph_.num_layers() >= most_) return fmt::format(": it has {} layers", graph_.num_layers());
    Frame root;
    for (int l = 0; l < graph_.num_layers(); ++l) {
      if (cursor_.has_predecessors_of(l)) root.ready.push_back(l);
      if (too_wide(root.ready)) return width(root.ready);
    }
    int64_t emitted = 1;
    emit(cursor_);
    stack_.push_back(std::move(root));
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next == frame.ready.size()) {
        if (frame.layer >= 0) cursor_.remove(frame.layer);
        stack_.pop_back();
        continue;
      }
      Frame child = child_of(frame, frame.next++);
      if (too_wide(child.ready)) return width(child.ready);
      if (++emitted > most_) return "";
      emit(cursor_);
      stack_.push_back(std::move(child));
    }
    return std::nullopt;
  }

 private:
  struct Frame {
    int layer = -1;  ///< added last, -1 for the empty set
    /// Layers after `layer` whose predecessors are all in the set, ascending.
    std::vector<int> ready;
    size_t next = 0;
  };

  // k layers that may each be in or out make 2^k states: noticed before they are listed.
  bool too_wide(const std::vector<int>& ready) const {
    return ready.size() >= 63 || (int64_t{1} << ready.size()) > most_;
  }

  std::string width(const std::vector<int>& ready) const {
    return fmt::format(": {} or more layers, '{}' and '{}' among them, do not depend on each other",
                       ready.size(), graph_.layers()[static_cast<size_t>(ready[0])].name,
                       graph_.layers()[static_cast<size_t>(ready[1])].name);
  }

  Frame child_of(const Frame& frame, size_t position) {
    Frame child;
    child.layer = frame.ready[position];
    child.ready.assign(frame.ready.begin() + static_cast<std::ptrdiff_t>(position) + 1,
                       frame.ready.end());
    cursor_.add(child.layer);
    for (const LayerId successor : graph_.successors(LayerId{child.layer})) {
      if (cursor_.has_predecessors_of(successor.value)) child.ready.push_back(successor.value);
      if (too_wide(child.ready)) return child;
    }
    std::sort(child.ready.begin(), child.ready.end());
    return child;
  }

  const graph::ModelGraph& graph_;
  const int64_t most_;
  CutCursor cursor_;
  std::vector<Frame> stack_;
};

}  // namespace

CutStates::CutStates(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers) {
  if (const auto where = fill(graph, layers, kMaxCutStates)) {
    throw ConfigError(
        fmt::format("the model has more than {} cut states (sets of layers that a stage boundary "
                    "may follow){}; merge the layers of parallel "
                    "branches into one layer each, so that fewer of them can be cut independently",
                    kMaxCutStates, *where));
  }
}

std::optional<CutStates> CutStates::all(const graph::ModelGraph& graph,
                                        const std::vector<PlannedLayer>& layers, int64_t most) {
  CutStates states;
  if (states.fill(graph, layers, most)) return std::nullopt;
  return states;
}

std::optional<std::string> CutStates::fill(const graph::ModelGraph& graph,
                                           const std::vector<PlannedLayer>& layers, int64_t most) {
  check_totals(graph, layers);
  num_layers_ = graph.num_layers();
  words_ = (layers.size() + 63) / 64;
  auto too_many =
      CutEnumeration(graph, layers, most).run([this](const CutCursor& cursor) { append(cursor); });
  if (!too_many) index();
  return too_many;
}

CutStates::CutStates(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers,
                     const LayerSets& downsets)
    : num_layers_(graph.num_layers()), words_((layers.size() + 63) / 64) {
  check_totals(graph, layers);
  CutCursor cursor(graph, layers);
  append(cursor);
  for (size_t s = 0; s < downsets.size(); ++s) {
    cursor.move_to(downsets[s]);
    append(cursor);
  }
  for (int l = 0; l < num_layers_; ++l) {
    if (!cursor.contains(l)) cursor.add(l);
  }
  append(cursor);
  index();
}

int64_t CutStates::bytes_of(int64_t states, int64_t layers) {
  constexpr auto kEach = static_cast<int64_t>(sizeof(LayerSums) + sizeof(int64_t)) +
                         3 * static_cast<int64_t>(sizeof(int32_t));
  constexpr int64_t kCopies = 4;  // vectors grow by doubling, and are copied to be sorted
  return saturating_mul(kCopies * states, kEach + (layers + 63) / 64 * 8);
}

void CutStates::append(const CutCursor& cursor) {
  bits_.insert(bits_.end(), cursor.bits().begin(), cursor.bits().end());
  counts_.push_back(cursor.count());
  sums_.push_back(cursor.sums());
  cut_bytes_.push_back(cursor.cut_bytes());
}

void CutStates::index() {
  sort_states();
  find_classes();
  if (num_classes_ < num_layers_) join_classes();
  for (int s = 0; s < size(); ++s) {
    const auto words = classes(s);
    first_gap_.push_back(static_cast<int32_t>(
        std::find_if(words.begin(), words.end(), [](uint64_t w) { return w != ~uint64_t{0}; }) -
        words.begin()));
    const auto last = std::find_if(words.rbegin(), words.rend(), [](uint64_t w) { return w != 0; });
    end_.push_back(static_cast<int32_t>(words.rend() - last));
  }
}

// By size, then by content: subsets come first, and the order does not depend on how states were
// found. Each once.
void CutStates::sort_states() {
  std::vector<int32_t> order(sums_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto bits = [this](int32_t state) {
    return std::span(bits_.data() + words_ * static_cast<size_t>(state), words_);
  };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    if (counts_[static_cast<size_t>(a)] != counts_[static_cast<size_t>(b)])
      return counts_[static_cast<size_t>(a)] < counts_[static_cast<size_t>(b)];
    return std::lexicographical_compare(bits(a).begin(), bits(a).end(), bits(b).begin(),
                                        bits(b).end());
  });
  order.erase(std::unique(order.begin(), order.end(),
                          [&](int32_t a, int32_t b) {
                            return std::equal(bits(a).begin(), bits(a).end(), bits(b).begin());
                          }),
              order.end());
  CutStates sorted;
  for (const int32_t from : order) {
    sorted.bits_.insert(sorted.bits_.end(), bits(from).begin(), bits(from).end());
    sorted.counts_.push_back(counts_[static_cast<size_t>(from)]);
    sorted.sums_.push_back(sums_[static_cast<size_t>(from)]);
    sorted.cut_bytes_.push_back(cut_bytes_[static_cast<size_t>(from)]);
  }
  bits_ = std::move(sorted.bits_);
  counts_ = std::move(sorted.counts_);
  sums_ = std::move(sorted.sums_);
  cut_bytes_ = std::move(sorted.cut_bytes_);
}

// Splits the class of all layers by one state after another. The bits are still those of layers.
void CutStates::find_classes() {
  class_of_.assign(static_cast<size_t>(num_layers_), 0);
  std::vector<int32_t> members(num_layers_ > 0 ? 1 : 0, num_layers_);
  std::vector<int32_t> inside;
  std::vector<int32_t> split;
  const auto for_each_layer = [this](int state, const auto& function) {
    for (size_t w = 0; w < words_; ++w) {
      for (uint64_t left = bits_[words_ * static_cast<size_t>(state) + w]; left != 0;
           left &= left - 1) {
        function(w * 64 + static_cast<size_t>(std::countr_zero(left)));
      }
    }
  };
  for (int state = 1; state < full() && members.size() < class_of_.size(); ++state) {
    inside.assign(members.size(), 0);
    for_each_layer(state, [&](size_t layer) { ++inside[static_cast<size_t>(class_of_[layer])]; });
    split.assign(members.size(), -1);
    for (size_t c = 0; c < inside.size(); ++c) {
      if (inside[c] == 0 || inside[c] == members[c]) continue;
      split[c] = static_cast<int32_t>(members.size());
      members[c] -= inside[c];
      members.push_back(inside[c]);
    }
    for_each_layer(state, [&](size_t layer) {
      const int32_t to = split[static_cast<size_t>(class_of_[layer])];
      if (to >= 0) class_of_[layer] = to;
    });
  }
  std::vector<int32_t> number(members.size(), -1);
  num_classes_ = 0;
  for (int32_t& c : class_of_) {
    if (number[static_cast<size_t>(c)] < 0) number[static_cast<size_t>(c)] = num_classes_++;
    c = number[static_cast<size_t>(c)];
  }
}

// From bits of layers to bits of classes.
void CutStates::join_classes() {
  std::vector<size_t> first_layer;
  for (size_t layer = 0; layer < class_of_.size(); ++layer) {
    if (static_cast<size_t>(class_of_[layer]) == first_layer.size()) first_layer.push_back(layer);
  }
  const size_t words = (first_layer.size() + 63) / 64;
  std::vector<uint64_t> bits(words * sums_.size(), 0);
  for (size_t s = 0; s < sums_.size(); ++s) {
    for (size_t c = 0; c < first_layer.size(); ++c) {
      bits[words * s + c / 64] |=
          (bits_[words_ * s + first_layer[c] / 64] >> (first_layer[c] % 64) & 1) << (c % 64);
    }
  }
  bits_ = std::move(bits);
  words_ = words;
}

std::vector<uint64_t> CutStates::layers(int state) const {
  std::vector<uint64_t> result((class_of_.size() + 63) / 64, 0);
  for (size_t layer = 0; layer < class_of_.size(); ++layer) {
    result[layer / 64] |= uint64_t{contains(state, LayerId{static_cast<int32_t>(layer)})}
                          << (layer % 64);
  }
  return result;
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

LayerSums CutStates::between(int small, int large) const {
  const LayerSums& a = sums(small);
  const LayerSums& b = sums(large);
  return {.forward_ns = b.forward_ns - a.forward_ns,
          .compute_ns = b.compute_ns - a.compute_ns,
          .step_ns = b.step_ns - a.step_ns,
          .weight_bytes = b.weight_bytes - a.weight_bytes,
          .stash_bytes = b.stash_bytes - a.stash_bytes,
          .accumulate_ns = b.accumulate_ns - a.accumulate_ns};
}

SegmentCost CutStates::segment(int small, int large, bool recompute) const {
  const LayerSums sums = between(small, large);
  return {.compute_ns = sums.compute_ns + (recompute ? sums.forward_ns : 0),
          .step_ns = sums.step_ns,
          .weight_bytes = sums.weight_bytes,
          .accumulate_ns = sums.accumulate_ns,
          .overlap_ns = sums.compute_ns + sums.step_ns};
}

}  // namespace penstock::planner
