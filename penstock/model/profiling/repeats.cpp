#include "penstock/model/profiling/repeats.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "penstock/model/profiling/values.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {

namespace {

constexpr double kMostDifference = 0.1;  ///< of the longer time
constexpr double kErrors = 4;
constexpr double kLeastShareOfPass = 0.01;
constexpr size_t kLeastSamples = 5;

int64_t time_of(const LayerTimes& times) {
  return saturating_add(saturating_add(times.forward_ns, times.backward_ns), times.step_ns);
}

/// Adds the layers outside that make whole numbers or masks for those that run.
void add_makers(const Model& model, LayerId first, std::set<LayerId>& run) {
  std::vector<LayerId> open(run.begin(), run.end());
  while (!open.empty()) {
    const LayerId id = open.back();
    open.pop_back();
    for (const graph::ValueRef& input : model.graph().layer(id).inputs) {
      if (input.is_model_input() || input.layer >= first) continue;
      if (at::isFloatingType(type_of(model, input))) continue;
      if (run.insert(input.layer).second) open.push_back(input.layer);
    }
  }
}

}  // namespace

Coverage cover(const Model& model, const profile::LayerRange& layers,
               const std::vector<LayerClass>& classes) {
  Coverage coverage{.run = {},
                    .stand_in = std::vector<LayerId>(
                        static_cast<size_t>(model.graph().num_layers()), LayerId{-1})};
  for (LayerId id = layers.first; id <= layers.last; ++id.value) coverage.stand_in[id.index()] = id;
  for (const LayerClass& one : classes) {
    for (size_t i = 1; i + 1 < one.size(); ++i) coverage.stand_in[one[i].index()] = one.front();
  }
  std::set<LayerId> run;
  for (LayerId id = layers.first; id <= layers.last; ++id.value) {
    if (coverage.stand_in[id.index()] == id) run.insert(id);
  }
  add_makers(model, layers.first, run);
  for (const LayerId id : run) coverage.stand_in[id.index()] = id;
  coverage.run.assign(run.begin(), run.end());
  return coverage;
}

bool differ(const std::vector<std::vector<LayerTimes>>& samples, const CheckedPair& pair,
            int64_t pass_ns) {
  if (samples.size() < kLeastSamples) return false;
  const auto count = static_cast<double>(samples.size());
  double first = 0;
  double second = 0;
  for (const std::vector<LayerTimes>& times : samples) {
    first += static_cast<double>(time_of(times[pair.first])) / count;
    second += static_cast<double>(time_of(times[pair.second])) / count;
  }
  double squares = 0;
  for (const std::vector<LayerTimes>& times : samples) {
    const double one = static_cast<double>(time_of(times[pair.first])) -
                       static_cast<double>(time_of(times[pair.second])) - (first - second);
    squares += one * one;
  }
  const double difference = std::abs(first - second);
  const double error = std::sqrt(squares / (count - 1) / count);
  return difference > kMostDifference * std::max(first, second) && difference > kErrors * error &&
         difference * static_cast<double>(pair.layers) >=
             kLeastShareOfPass * static_cast<double>(pass_ns);
}

}  // namespace penstock::model::detail
