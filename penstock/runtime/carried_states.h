// What the layers of a replica carry from window to window (model::Layer::carried()), by the place
// of the micro-batch in its mini-batch. Internal to runtime.
//
//   CarriedStates states(module.carried_offsets().back());
//   model::Tensors now = states.before(0);   // undefined: the texts begin
//   ... F replaces them ...
//   states.keep(0, std::move(now));
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "penstock/model/layer.h"

namespace penstock::runtime {

/// Not thread-safe. Tensors are replaced, never overwritten: backward passes may still read them.
class CarriedStates {
 public:
  /// `count`: states of all layers of the stage, one behind the other.
  explicit CarriedStates(size_t count) : count_(count) {}

  /// Of the samples of the micro-batch in this place, [samples, ...] each; undefined: none yet.
  model::Tensors before(int64_t place) const {
    const auto found = places_.find(place);
    return found == places_.end() ? model::Tensors(count_) : found->second;
  }
  void keep(int64_t place, model::Tensors states) { places_[place] = std::move(states); }
  /// Texts begin anew.
  void clear() { places_.clear(); }
  const std::map<int64_t, model::Tensors>& by_place() const { return places_; }

 private:
  size_t count_;
  std::map<int64_t, model::Tensors> places_;
};

}  // namespace penstock::runtime
