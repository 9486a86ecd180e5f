// Where a LayerSnapshot keeps what the replicas of a stage have of their own in a round
// (RoundState), as states of each weight. LayerSnapshot::weights are those that the round would
// make if it ended there.
//
//   replica0.weights  replica0.exp_avg ...  replica1.weights  replica1.exp_avg ...
//   outer.weights  outer.momentum
//
//   RoundLayout layout(/*replicas=*/2, /*states=*/2, /*outer=*/1);
//   layout.weights(1) == 3; layout.state(1, 0) == 4; layout.start() == 6; layout.outer(0) == 7;
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::runtime {

class RoundLayout {
 public:
  /// `states`: of each replica's optimiser, `outer`: of the outer one.
  RoundLayout(int replicas, size_t states, size_t outer)
      : replicas_(static_cast<size_t>(replicas)), states_(states), outer_(outer) {}

  size_t weights(int replica) const { return static_cast<size_t>(replica) * (1 + states_); }
  size_t state(int replica, size_t number) const { return weights(replica) + 1 + number; }
  size_t start() const { return replicas_ * (1 + states_); }
  size_t outer(size_t number) const { return start() + 1 + number; }
  size_t size() const { return outer(outer_); }

  std::vector<std::string> names(const std::vector<std::string>& states,
                                 const std::vector<std::string>& outer) const {
    std::vector<std::string> all;
    for (size_t r = 0; r < replicas_; ++r) {
      all.push_back(fmt::format("replica{}.weights", r));
      for (const std::string& name : states) all.push_back(fmt::format("replica{}.{}", r, name));
    }
    all.emplace_back("outer.weights");
    for (const std::string& name : outer) all.push_back("outer." + name);
    return all;
  }

 private:
  size_t replicas_;
  size_t states_;
  size_t outer_;
};

}  // namespace penstock::runtime
