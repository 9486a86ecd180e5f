// A layer that does a member's part of another layer's work with the same code, on smaller tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/model/parts.h"

namespace penstock::shard {

/// A value of which a member has a part.
struct PartLength {
  size_t dimension = 0;  ///< of the batch (0) or a later one
  int64_t whole = 0;
  int64_t own = 0;
};

struct PartOfLayer {
  std::shared_ptr<const model::Layer> code;  ///< sees the parts
  std::shared_ptr<const model::Layer> whole;
  std::vector<model::TensorPart> parameters = {};  ///< the others are left out: undefined
  std::vector<model::TensorPart> buffers = {};
  std::vector<std::optional<PartLength>> inputs = {};  ///< nothing: whole
  std::vector<std::optional<PartLength>> outputs = {};
  double share = 1;  ///< of the whole layer's work
  /// Its whole weights see a part of the places: their gradients are the sums of all members'.
  bool sums_gradients = false;
};

/// What a layer derives from, besides Layer, that may sum its weights' gradients over the team.
class SumsWeightGradients {
 public:
  virtual bool sums_weight_gradients() const = 0;

 protected:
  ~SumsWeightGradients() = default;
};

std::shared_ptr<const model::Layer> make_part_layer(PartOfLayer part);

}  // namespace penstock::shard
