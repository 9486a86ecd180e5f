#include "penstock/planner/cuts/nesting.h"

#include <algorithm>
#include <bit>
#include <span>

namespace penstock::planner {

namespace {

void add(std::vector<uint64_t>& set, size_t member) {
  set[member / 64] |= uint64_t{1} << (member % 64);
}

void remove(std::vector<uint64_t>& set, const std::vector<uint64_t>& members) {
  for (size_t w = 0; w < set.size(); ++w) set[w] &= ~members[w];
}

template <class Function>
void for_each(std::span<const uint64_t> set, const Function& function) {
  for (size_t w = 0; w < set.size(); ++w) {
    for (uint64_t left = set[w]; left != 0; left &= left - 1)
      function(w * 64 + static_cast<size_t>(std::countr_zero(left)));
  }
}

}  // namespace

int64_t Nesting::bytes_of(int64_t states, int64_t classes) {
  const int64_t words_of_classes = (classes + 63) / 64;
  constexpr int64_t kSetsOfClasses = 2;
  return 8 * (classes * (states / 64 + 1) + kSetsOfClasses * classes * words_of_classes) +
         2 * static_cast<int64_t>(sizeof(std::vector<int32_t>)) * states;
}

int64_t Nesting::bytes() const {
  size_t items = 0;
  for (const auto* lists : {&last_layers_, &missing_layers_}) {
    for (const std::vector<int32_t>& list : *lists) items += list.capacity();
  }
  return static_cast<int64_t>(8 * words_ * with_layer_.size() + sizeof(int32_t) * items +
                              2 * sizeof(std::vector<int32_t>) * last_layers_.size());
}

Nesting::Nesting(const CutStates& states, const TimeLimit& time)
    : words_(static_cast<size_t>(states.size()) / 64 + 1), size_(states.size()) {
  const auto num_layers = static_cast<size_t>(states.num_classes());
  with_layer_.assign(num_layers, StateSet(words_));
  for (int state = 0; state < size_; ++state) {
    time.check();
    for_each(states.classes(state),
             [&](size_t layer) { add(with_layer_[layer], static_cast<size_t>(state)); });
  }
  const std::vector<LayerSet> to = always_with(states, time);
  std::vector<LayerSet> from(num_layers, LayerSet((num_layers + 63) / 64));
  for (size_t layer = 0; layer < num_layers; ++layer) {
    for_each(to[layer], [&](size_t other) { add(from[other], layer); });
  }
  find_generators(states, to, from, time);
}

// The intersection of all states with a layer, per layer. A state adds nothing for the layers that
// it shares with a subset of it.
std::vector<Nesting::LayerSet> Nesting::always_with(const CutStates& states,
                                                    const TimeLimit& time) {
  constexpr int kLookBack = 64;
  const auto num_layers = static_cast<size_t>(states.num_classes());
  LayerSet everything((num_layers + 63) / 64);
  for (size_t layer = 0; layer < num_layers; ++layer) add(everything, layer);
  std::vector<LayerSet> result(num_layers, everything);
  for (int state = 1; state < states.size(); ++state) {
    time.check();
    const auto bits = states.classes(state);
    LayerSet left(bits.begin(), bits.end());
    size_t count = static_cast<size_t>(-1);
    for (int earlier = state - 1; earlier >= std::max(0, state - kLookBack) && count > 1;
         --earlier) {
      if (!states.nested(earlier, state)) continue;
      count = 0;
      for (size_t w = 0; w < left.size(); ++w) {
        left[w] &= ~states.classes(earlier)[w];
        count += static_cast<size_t>(std::popcount(left[w]));
      }
    }
    for_each(left, [&](size_t layer) {
      for (size_t w = 0; w < left.size(); ++w) result[layer][w] &= bits[w];
    });
  }
  return result;
}

void Nesting::find_generators(const CutStates& states, const std::vector<LayerSet>& to,
                              const std::vector<LayerSet>& from, const TimeLimit& time) {
  const size_t num_layers = to.size();
  const size_t num_words = (num_layers + 63) / 64;
  last_layers_.resize(static_cast<size_t>(size_));
  missing_layers_.resize(static_cast<size_t>(size_));
  for (int state = 0; state < size_; ++state) {
    time.check();
    const auto bits = states.classes(state);
    LayerSet inside(bits.begin(), bits.end());
    for (size_t w = num_words; w-- > 0;) {
      while (inside[w] != 0) {
        const size_t layer = w * 64 + 63 - static_cast<size_t>(std::countl_zero(inside[w]));
        last_layers_[static_cast<size_t>(state)].push_back(static_cast<int32_t>(layer));
        remove(inside, to[layer]);
      }
    }
    LayerSet outside(num_words);
    for (size_t w = 0; w < num_words; ++w) outside[w] = ~bits[w];
    if (num_layers % 64 != 0) outside.back() &= (uint64_t{1} << (num_layers % 64)) - 1;
    for (size_t w = 0; w < num_words; ++w) {
      while (outside[w] != 0) {
        const size_t layer = w * 64 + static_cast<size_t>(std::countr_zero(outside[w]));
        missing_layers_[static_cast<size_t>(state)].push_back(static_cast<int32_t>(layer));
        remove(outside, from[layer]);
      }
    }
  }
}

void Nesting::supersets(int state, StateSet& row) const {
  row.assign(words_, 0);
  // A superset comes after the state.
  const auto first = static_cast<size_t>(state) / 64;
  for (size_t w = first; w < words_; ++w) row[w] = ~uint64_t{0};
  for (const int32_t layer : last_layers_[static_cast<size_t>(state)]) {
    const StateSet& with = with_layer_[static_cast<size_t>(layer)];
    for (size_t w = first; w < words_; ++w) row[w] &= with[w];
  }
  row[first] &= ~uint64_t{0} << (state % 64) << 1;
  row.back() &= (uint64_t{1} << (size_ % 64)) - 1;
}

void Nesting::subsets(int state, StateSet& row) const {
  row.assign(words_, 0);
  const auto last = static_cast<size_t>(state) / 64;
  for (size_t w = 0; w <= last; ++w) row[w] = ~uint64_t{0};
  for (const int32_t layer : missing_layers_[static_cast<size_t>(state)]) {
    const StateSet& with = with_layer_[static_cast<size_t>(layer)];
    for (size_t w = 0; w <= last; ++w) row[w] &= ~with[w];
  }
  row[last] &= (uint64_t{1} << (state % 64)) - 1;
}

}  // namespace penstock::planner
