// What a built-in layer may say that depends on which part of a whole value it sees, by deriving
// from this besides Layer: dropout, whose mask is that of the whole value; attention, which has
// some of the heads; a table with some of its rows; an LSTM with some of its hidden units. shard/
// asks for it.
//
//   const auto* works = dynamic_cast<const WorksOnParts*>(&layer);
//   std::shared_ptr<const Layer> member = works->on_part({.dimension = 2, .whole = 96, .runs =
//   ...});
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/model/parts.h"
#include "penstock/model/team.h"

namespace penstock::model {

/// The numbers that there are, along one dimension of the layer's input, of its batch (0) or a
/// later one; for a table or an LSTM: of the rows of its weights.
struct InputPart {
  int64_t dimension = 0;
  /// 0: known at run time, and all members of the team have as much, in their order.
  int64_t whole = 0;
  std::vector<TensorPart::Run> runs = {};
  /// Of all members, in their order; for layers that gather what they make. Not in text().
  std::vector<int64_t> lengths = {};

  /// The part where a member has `own` numbers along the dimension; without a team they are all.
  InputPart placed(int64_t own, const Team* team) const {
    if (whole != 0) return *this;
    if (team == nullptr) return {dimension, own, {{0, own}}, {}};
    return {dimension, own * team->size(), {{own * team->member(), own}}, {}};
  }

  /// " part 2: 0+32 of 96", for KnownCode::code().
  std::string text() const {
    std::string places;
    for (const TensorPart::Run& run : runs) places += fmt::format(" {}+{}", run.begin, run.length);
    return fmt::format(" part {}:{} of {}", dimension, places, whole);
  }

  /// The part of a tensor with the whole length.
  at::Tensor of(const at::Tensor& tensor) const {
    return TensorPart{.whole = {}, .dimension = dimension, .runs = runs}.of(tensor);
  }
};

class WorksOnParts {
 public:
  /// Into how many units a dimension may be divided, such as heads; 0: anyhow.
  virtual int64_t units() const { return 0; }
  /// The layer that does with the part what this one does with the whole: the same numbers.
  virtual std::shared_ptr<const Layer> on_part(const InputPart& part) const = 0;

 protected:
  ~WorksOnParts() = default;
};

}  // namespace penstock::model
