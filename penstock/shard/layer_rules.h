// How the built-in layers take part in a team: a row per kind. The parts of two linear layers with
// what lies between them are those of Shoeybi et al. 2019, section 3.
#pragma once

#include <memory>
#include <vector>

#include "penstock/shard/shardable.h"

namespace penstock::shard {

using SharedLayer = std::shared_ptr<const model::Layer>;

/// As Shardable, of any layer.
class Rule {
 public:
  virtual ~Rule() = default;
  virtual std::vector<size_t> candidates(const SharedLayer&) const { return {}; }
  /// Whether infer() takes parts of the places of such sequences; otherwise it sees equal values.
  virtual bool takes_sequences(Regions::Lengths) const { return false; }
  virtual LayerTypes infer(const SharedLayer& layer, const std::vector<Type>& inputs,
                           const Shardable::Shapes& shapes, Walk& walk) const = 0;
  /// Not called where all types are equal: then the member's layer is the whole one.
  virtual std::vector<Piece> pieces(const SharedLayer& layer, const LayerTypes& types,
                                    const Shardable::Shapes& shapes,
                                    const Member& member) const = 0;
};

/// That of the layer itself (Shardable), of its kind, or the one for layers that stay whole.
const Rule& rule_of(const model::Layer& layer);

/// Whether every member does all of it.
bool is_whole(const LayerTypes& types);

}  // namespace penstock::shard
