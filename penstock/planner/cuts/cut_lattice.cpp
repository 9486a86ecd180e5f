#include "penstock/planner/cuts/cut_lattice.h"

#include <algorithm>
#include <bitset>
#include <unordered_map>

#include "penstock/planner/cuts/cut_cursor.h"
#include "penstock/planner/cuts/layer_orders.h"

namespace penstock::planner {

namespace {

constexpr size_t kMostRemembered = 256;
using Key = std::bitset<kMostRemembered>;

// What deciding one layer does to a key, worked out once for all nodes of its position. A slot is a
// bit of the key: for an undecided layer, that it misses a predecessor; for a value that several
// layers read, that its bytes are counted or it does not exist.
struct Step {
  struct Value {
    int64_t bytes = 0;
    Key counted;          ///< its bit; none when one layer alone reads it
    Key readers_missing;  ///< bits of the layers that read it
  };
  struct Reader {
    Key missing;                ///< its bit
    std::vector<Value> inputs;  ///< made by layers decided before this one
  };
  Key missing;  ///< this layer's bit; none when it has no predecessors
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  std::vector<Reader> readers;
  Key forgotten;  ///< bits that no later step needs
};

int64_t count_once(const Step::Value& value, Key& key) {
  if ((key & value.counted).any()) return 0;
  key |= value.counted;
  return value.bytes;
}

int64_t take(const Step& step, Key& key) {
  int64_t bytes = 0;
  for (const Step::Value& value : step.outputs) {
    if ((key & value.readers_missing).any()) bytes += count_once(value, key);
  }
  key &= ~step.forgotten;
  return bytes;
}

int64_t leave(const Step& step, Key& key) {
  int64_t bytes = 0;
  // The inputs of a layer that misses a predecessor were counted when it lost it.
  if ((key & step.missing).none()) {
    for (const Step::Value& value : step.inputs) bytes += count_once(value, key);
  }
  for (const Step::Reader& reader : step.readers) {
    if ((key & reader.missing).any()) continue;
    key |= reader.missing;
    for (const Step::Value& value : reader.inputs) bytes += count_once(value, key);
  }
  for (const Step::Value& value : step.outputs) key |= value.counted;
  key &= ~step.forgotten;
  return bytes;
}

}  // namespace

class CutLatticeBuilder {
 public:
  CutLatticeBuilder(const graph::ModelGraph& graph, const std::vector<PlannedLayer>& layers,
                    std::vector<int> order)
      : graph_(graph),
        layers_(layers),
        order_(std::move(order)),
        position_(order_.size()),
        layer_slot_(order_.size()) {
    for (size_t k = 0; k < order_.size(); ++k)
      position_[static_cast<size_t>(order_[k])] = static_cast<int>(k);
    for (size_t l = 0; l < order_.size(); ++l) {
      value_slots_.emplace_back(layers[l].output_bytes.size());
      last_reader_.emplace_back(layers[l].output_bytes.size(), -1);
      readers_.emplace_back(layers[l].output_bytes.size());
    }
    for (size_t l = 0; l < order_.size(); ++l) {
      inputs_.push_back(distinct_inputs(graph.layers()[l]));
      for (const graph::ValueRef& input : inputs_.back()) {
        int& last = last_reader_[input.layer.index()][static_cast<size_t>(input.output)];
        last = std::max(last, position_[l]);
        readers_[input.layer.index()][static_cast<size_t>(input.output)].push_back(
            static_cast<int>(l));
      }
    }
  }

  std::optional<CutLattice> run(int64_t max_nodes) {
    CutLattice lattice;
    lattice.order_ = order_;
    std::vector<Key> keys = {Key()};
    lattice.nodes_.emplace_back();
    size_t level_begin = 0;
    std::unordered_map<Key, int32_t> found;
    for (const int layer : order_) {
      lattice.compute_ns_.push_back(layers_[static_cast<size_t>(layer)].compute_ns);
      const auto step = next_step(layer);
      if (!step) return std::nullopt;
      found.clear();
      const size_t level_end = lattice.nodes_.size();
      std::vector<Key> next_keys;
      const auto node_of = [&](Key key) {
        const auto [at, is_new] =
            found.try_emplace(key, static_cast<int32_t>(lattice.nodes_.size()));
        if (is_new) {
          lattice.nodes_.emplace_back();
          next_keys.push_back(key);
        }
        return at->second;
      };
      for (size_t i = level_begin; i < level_end; ++i) {
        const Key key = keys[i - level_begin];
        if ((key & step->missing).none()) {
          Key taken = key;
          lattice.nodes_[i].in_bytes = take(*step, taken);
          const int32_t next = node_of(taken);
          lattice.nodes_[i].in = next;
        }
        Key left = key;
        lattice.nodes_[i].out_bytes = leave(*step, left);
        const int32_t next = node_of(left);
        lattice.nodes_[i].out = next;
        if (static_cast<int64_t>(lattice.nodes_.size()) > max_nodes) return std::nullopt;
      }
      keys = std::move(next_keys);
      level_begin = level_end;
    }
    sum_up(lattice);
    return lattice;
  }

 private:
  std::optional<Key> new_slot() {
    for (size_t bit = 0; bit < kMostRemembered; ++bit) {
      if (used_slots_[bit]) continue;
      used_slots_.set(bit);
      return Key().set(bit);
    }
    return std::nullopt;
  }

  Step::Value value_of(const graph::ValueRef& ref) const {
    const auto l = ref.layer.index();
    const auto o = static_cast<size_t>(ref.output);
    Step::Value value{
        .bytes = layers_[l].output_bytes[o], .counted = value_slots_[l][o], .readers_missing = {}};
    for (const int reader : readers_[l][o])
      value.readers_missing |= layer_slot_[static_cast<size_t>(reader)];
    return value;
  }

  bool assign_slots(int layer) {
    for (const LayerId successor : graph_.successors(LayerId{layer})) {
      Key& slot = layer_slot_[successor.index()];
      if (slot.any()) continue;
      const auto fresh = new_slot();
      if (!fresh) return false;
      slot = *fresh;
    }
    auto& slots = value_slots_[static_cast<size_t>(layer)];
    for (size_t o = 0; o < slots.size(); ++o) {
      if (readers_[static_cast<size_t>(layer)][o].size() < 2) continue;
      const auto fresh = new_slot();
      if (!fresh) return false;
      slots[o] = *fresh;
    }
    return true;
  }

  std::optional<Step> next_step(int layer) {
    if (!assign_slots(layer)) return std::nullopt;
    const auto l = static_cast<size_t>(layer);
    const int position = position_[l];
    Step step;
    step.missing = layer_slot_[l];
    step.forgotten = step.missing;
    for (const graph::ValueRef& input : inputs_[l]) {
      step.inputs.push_back(value_of(input));
      if (last_reader_[input.layer.index()][static_cast<size_t>(input.output)] == position)
        step.forgotten |= step.inputs.back().counted;
    }
    for (size_t o = 0; o < readers_[l].size(); ++o) {
      if (!readers_[l][o].empty())
        step.outputs.push_back(value_of({LayerId{layer}, static_cast<int>(o)}));
    }
    for (const LayerId successor : graph_.successors(LayerId{layer})) {
      Step::Reader reader{.missing = layer_slot_[successor.index()], .inputs = {}};
      for (const graph::ValueRef& input : inputs_[successor.index()]) {
        if (position_[input.layer.index()] < position) reader.inputs.push_back(value_of(input));
      }
      step.readers.push_back(std::move(reader));
    }
    used_slots_ &= ~step.forgotten;
    return step;
  }

  static void sum_up(CutLattice& lattice) {
    auto& nodes = lattice.nodes_;
    std::vector<int32_t> position(nodes.size(), 0);
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const int32_t next : {nodes[i].in, nodes[i].out}) {
        if (next >= 0) position[static_cast<size_t>(next)] = position[i] + 1;
      }
    }
    for (size_t i = nodes.size(); i-- > 0;) {
      CutLattice::Node& node = nodes[i];
      if (node.out < 0) {
        node.count = 1;
        continue;
      }
      const CutLattice::Node& out = nodes[static_cast<size_t>(node.out)];
      node.least_bytes = node.out_bytes + out.least_bytes;
      node.most_compute = out.most_compute;
      node.count = out.count;
      if (node.in < 0) continue;
      const CutLattice::Node& in = nodes[static_cast<size_t>(node.in)];
      node.least_bytes = std::min(node.least_bytes, node.in_bytes + in.least_bytes);
      node.most_compute =
          std::max(node.most_compute,
                   lattice.compute_ns_[static_cast<size_t>(position[i])] + in.most_compute);
      node.count += in.count;
    }
  }

  const graph::ModelGraph& graph_;
  const std::vector<PlannedLayer>& layers_;
  std::vector<int> order_;
  std::vector<int> position_;
  std::vector<std::vector<graph::ValueRef>> inputs_;
  std::vector<std::vector<std::vector<int>>> readers_;  ///< per layer and output
  /// Its position, -1 when no layer reads the value.
  std::vector<std::vector<int>> last_reader_;
  std::vector<Key> layer_slot_;
  std::vector<std::vector<Key>> value_slots_;
  Key used_slots_;
};

std::optional<CutLattice> CutLattice::build(const graph::ModelGraph& graph,
                                            const std::vector<PlannedLayer>& layers,
                                            int64_t max_nodes) {
  return CutLatticeBuilder(graph, layers, narrow_order(graph)).run(max_nodes);
}

// Depth-first over the paths that may still pass. `found` gets the set's bits and bytes, returns
// the most bytes that are still of interest, negative to stop. Whether all were seen.
template <typename Found>
bool CutLattice::walk(const Filter& filter, int64_t steps, const Found& found) const {
  struct Frame {
    int32_t node = 0;
    int32_t position = 0;
    int64_t bytes = 0;
    int64_t compute_ns = 0;
    bool taken = false;  ///< the layer before this position is in the set
  };
  std::vector<uint64_t> bits((order_.size() + 63) / 64, 0);
  const auto flip = [&](int32_t position) {
    const auto layer = static_cast<size_t>(order_[static_cast<size_t>(position)]);
    bits[layer / 64] ^= uint64_t{1} << (layer % 64);
  };
  int64_t most_bytes = filter.most_bytes;
  // A frame with node -1 undoes the layer before its position.
  std::vector<Frame> stack = {{}};
  while (!stack.empty()) {
    const Frame frame = stack.back();
    stack.pop_back();
    if (frame.node < 0) {
      flip(frame.position - 1);
      continue;
    }
    if (--steps < 0) return false;
    const Node& node = nodes_[static_cast<size_t>(frame.node)];
    if (frame.bytes + node.least_bytes > most_bytes) continue;
    if (filter.wanted_compute &&
        !filter.wanted_compute(frame.compute_ns, frame.compute_ns + node.most_compute))
      continue;
    if (frame.taken) {
      flip(frame.position - 1);
      stack.push_back({.node = -1, .position = frame.position});
    }
    if (node.count == 1) {
      // A single path leads on, and leaving everything out is always one.
      most_bytes = found(bits, frame.bytes + node.least_bytes, most_bytes);
      if (most_bytes < 0) return false;
      continue;
    }
    const int64_t with_ns = frame.compute_ns + compute_ns_[static_cast<size_t>(frame.position)];
    stack.push_back(
        {node.out, frame.position + 1, frame.bytes + node.out_bytes, frame.compute_ns, false});
    if (node.in >= 0)
      stack.push_back({node.in, frame.position + 1, frame.bytes + node.in_bytes, with_ns, true});
  }
  return true;
}

bool CutLattice::list(const Filter& filter, Limits limits, LayerSets& sets) const {
  size_t left = limits.sets;
  return walk(
      filter, limits.steps,
      [&](const std::vector<uint64_t>& bits, int64_t /*bytes*/, int64_t most_bytes) -> int64_t {
        if (left == 0) return -1;
        --left;
        sets.add(bits);
        return most_bytes;
      });
}

std::vector<uint64_t> CutLattice::cheapest(const Filter& filter, int64_t steps) const {
  std::vector<uint64_t> best;
  walk(filter, steps,
       [&](const std::vector<uint64_t>& bits, int64_t bytes, int64_t /*most_bytes*/) {
         best = bits;
         return bytes - 1;
       });
  return best;
}

}  // namespace penstock::planner
