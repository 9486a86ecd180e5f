// What of a source its translation has covered so far, by the attention of the model. Internal to
// decode.cpp, but for what checks a run before it begins.
//
//   const Attending attending = attending_layer(model);
//   coverage({shares, lengths}, /*place=*/4);   // of the first five tokens of each translation
#pragma once

#include <vector>

#include "penstock/model/attends.h"
#include "penstock/model/model.h"
#include "penstock/util/ids.h"

namespace penstock::train {

/// The layer of a model that attends to the source.
struct Attending {
  LayerId layer;
  const model::Attends* attends = nullptr;  ///< the model's
};

/// Throws ConfigError where the model has no such layer, or several.
Attending attending_layer(const model::Model& model);

/// Of each sample: the sum over the source's tokens of log(min(their shares of the target's places
/// 0 to `place` together, 1)), at most 0. A share of 0 counts as the smallest normal float32, so
/// that sentences stay comparable. In float32. Source: Wu et al. 2016, equation 14, cp(X; Y) /
/// beta; |X| counts the source's end, too.
std::vector<double> coverage(const model::AttentionShares& attention, int64_t place);

}  // namespace penstock::train
