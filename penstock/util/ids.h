// Indices that cannot be mixed up: a StageId is not a WorkerId. Each holds a plain integer, with
// explicit conversions in both directions, and is ordered, hashable and printable.
//
//   StageId stage{2};  stages[stage.index()];  StageId next{stage.value + 1};
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>

namespace penstock {

template <class Tag, class Integer = int32_t>
struct Id {
  Integer value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Integer v) : value(v) {}
  constexpr size_t index() const { return static_cast<size_t>(value); }
  constexpr auto operator<=>(const Id&) const = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value; }
};

/// A layer of a model graph, by position in its list of layers.
using LayerId = Id<struct LayerTag>;
/// A stage of the pipeline, 0 nearest the input.
using StageId = Id<struct StageTag>;
/// A worker (one thread or device), counted over the whole run.
using WorkerId = Id<struct WorkerTag>;
/// A micro-batch, counted over the whole schedule from 0.
using MicroBatchId = Id<struct MicroBatchTag, int64_t>;
/// A mini-batch (the samples of one optimiser step), counted over the whole schedule from 0.
using MiniBatchId = Id<struct MiniBatchTag, int64_t>;
/// A version of one stage's weights: the number of optimiser steps applied since the schedule
/// began.
using WeightVersion = Id<struct WeightVersionTag, int64_t>;

}  // namespace penstock

template <class Tag, class Integer>
struct std::hash<penstock::Id<Tag, Integer>> {
  size_t operator()(penstock::Id<Tag, Integer> id) const noexcept {
    return std::hash<Integer>{}(id.value);
  }
};
