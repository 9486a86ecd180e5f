// How many targets are among the largest outputs, counted by the workers of the last stage while
// they compute the loss.
//
//   TopHits hits(5);
//   run_options.loss = hits.beside(loss, spec);
//   hits.of_all(ranks);   // after the run
#pragma once

#include <atomic>
#include <cstdint>

#include "penstock/model/loss.h"
#include "penstock/runtime/ranks.h"

namespace penstock::train {

/// Must live until the run has ended. Thread-safe.
class TopHits {
 public:
  explicit TopHits(int64_t most) : most_(most) {}

  /// The loss, which also counts (model::count_in_largest).
  model::Loss beside(model::Loss loss, model::LossSpec spec);
  /// Over all ranks. Collective; blocks until all have called it.
  int64_t of_all(const runtime::Ranks& ranks) const;

 private:
  int64_t most_;
  std::atomic<int64_t> hits_ = 0;
};

inline constexpr int64_t kTopOutputs = 5;
/// Whether a share of targets among the five largest outputs says something: logits of more
/// classes. `loss`: of model::loss_for().
bool has_top5(const model::Model& model, const model::LossSpec& loss);

}  // namespace penstock::train
