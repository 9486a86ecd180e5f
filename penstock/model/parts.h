// Which part of a whole model's layer a layer is, where the weights of a stage are spread over the
// members of a team (shard/): a model for teams has each layer once per member. Outside such a
// model weights are whole: under the whole model's names, in checkpoints and state dicts.
//
//   model.parts()->layers[id.index()].parameters[0].of(whole_weight);   // the member's part
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/util/ids.h"

namespace penstock::model {

/// The numbers of one member's part of a tensor: runs along one dimension, one behind the other.
struct TensorPart {
  struct Run {
    int64_t begin = 0;  ///< in the whole tensor
    int64_t length = 0;
    bool operator==(const Run&) const = default;
  };
  std::vector<int64_t> whole;  ///< sizes of the whole tensor
  size_t number = 0;           ///< in the whole layer's list of parameters or buffers
  int64_t dimension = 0;
  std::vector<Run> runs = {};  ///< empty: the member has all of it
  bool is_copy = false;        ///< a member before has the same numbers

  bool is_whole() const { return runs.empty(); }
  std::vector<int64_t> sizes() const;
  /// The part of a whole tensor: a new one, or the whole tensor itself where it is_whole().
  at::Tensor of(const at::Tensor& tensor) const;
  /// Writes the part to its place in a whole tensor.
  void put_into(at::Tensor& tensor, const at::Tensor& part) const;
  bool operator==(const TensorPart&) const = default;
};

/// Of one layer of a model for teams.
struct LayerPart {
  int team = 1;  ///< members of its stage's team
  int member = 0;
  /// The layer of the whole model, of which it does all or some; nothing: one between the members,
  /// without weights.
  std::optional<LayerId> whole = {};
  std::vector<TensorPart> parameters = {};
  std::vector<TensorPart> buffers = {};

  /// Whether the member's weight counts, in norms and in numbers of weights: those that several
  /// members have count once.
  bool counts(size_t parameter) const {
    const TensorPart& part = parameters[parameter];
    return part.is_whole() ? member == 0 : !part.is_copy;
  }
};

}  // namespace penstock::model
