#include "penstock/planner/cuts/cut_cursor.h"

#include <algorithm>
#include <bit>

namespace penstock::planner {

std::vector<graph::ValueRef> distinct_inputs(const graph::LayerNode& layer) {
  std::vector<graph::ValueRef> inputs;
  std::copy_if(layer.inputs.begin(), layer.inputs.end(), std::back_inserter(inputs),
               [](const graph::ValueRef& input) { return !input.is_model_input(); });
  std::sort(inputs.begin(), inputs.end());
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  return inputs;
}

CutCursor::CutCursor(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers)
    : graph_(graph), layers_(layers) {
  const auto n = static_cast<size_t>(graph.num_layers());
  inputs_.resize(n);
  missing_.resize(n);
  readers_left_.resize(n);
  bits_.assign((n + 63) / 64, 0);
  for (size_t l = 0; l < n; ++l) {
    readers_left_[l].assign(layers[l].output_bytes.size(), 0);
    missing_[l] = static_cast<int>(graph.predecessors(LayerId{static_cast<int32_t>(l)}).size());
    inputs_[l] = distinct_inputs(graph.layers()[l]);
    for (const graph::ValueRef& input : inputs_[l])
      ++readers_left_[input.layer.index()][static_cast<size_t>(input.output)];
  }
}

void CutCursor::move_to(std::span<const uint64_t> bits) {
  const std::vector<uint64_t> before = bits_;
  for (size_t w = 0; w < before.size(); ++w) {
    for (uint64_t differing = before[w] ^ bits[w]; differing != 0; differing &= differing - 1) {
      const int bit = std::countr_zero(differing);
      change(static_cast<int>(w) * 64 + bit, (bits[w] >> bit & 1) != 0 ? +1 : -1);
    }
  }
}

bool CutCursor::may_remove(int layer) const {
  if (!contains(layer)) return false;
  const auto& successors = graph_.successors(LayerId{layer});
  return std::none_of(successors.begin(), successors.end(),
                      [this](LayerId s) { return contains(s.value); });
}

void CutCursor::change(int layer, int sign) {
  const auto l = static_cast<size_t>(layer);
  const PlannedLayer& cost = layers_[l];
  bits_[l / 64] ^= uint64_t{1} << (l % 64);
  count_ += sign;
  sums_.add(cost, sign);
  for (size_t o = 0; o < cost.output_bytes.size(); ++o) {
    if (readers_left_[l][o] > 0) cut_bytes_ += sign * cost.output_bytes[o];
  }
  for (const graph::ValueRef& input : inputs_[l]) {
    int& left = readers_left_[input.layer.index()][static_cast<size_t>(input.output)];
    const bool was_open = left > 0;
    left -= sign;
    // Only a value whose maker is in the set crosses its border; on the way from one downset to
    // another it may not be.
    if (was_open != (left > 0) && contains(input.layer.value)) {
      cut_bytes_ -=
          sign * layers_[input.layer.index()].output_bytes[static_cast<size_t>(input.output)];
    }
  }
  for (const LayerId successor : graph_.successors(LayerId{layer}))
    missing_[successor.index()] -= sign;
}

}  // namespace penstock::planner
