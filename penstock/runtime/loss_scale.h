// By how much the loss is scaled where activations are float16, so that small gradients are not
// rounded to zero on their way back; and which steps are left out because a gradient was not
// finite.
//
//   LossScale scale(state);
//   tape.loss(..., scale.at(version));       // version: the one that the loss's stage ran F on
//   if (!scale.take(totals.norm)) skip();    // NORM
//
// The scale of a mini-batch follows from the norms of those before it, which every worker gets:
// each keeps its own copy, and all of them make and leave out the same steps. A micro-batch is
// scaled for the version of the weights that its loss's stage reads, which the schedule names: by
// the time that a worker runs its backward pass it has seen the norms of all versions before that
// one, because the loss's stage has, and NORM takes a part of every worker.
//
// Powers of two: scaling and unscaling change no digit. Source: Micikevicius et al., "Mixed
// Precision Training" (ICLR 2018), section 3.2, with the numbers of PyTorch's GradScaler.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::runtime {

/// What outlasts a run.
struct LossScaleState {
  double scale = 65536;
  int64_t good_steps = 0;  ///< since the scale changed
  int64_t skipped = 0;     ///< steps left out so far

  bool operator==(const LossScaleState&) const = default;
};

/// Not thread-safe: one per worker.
class LossScale {
 public:
  /// Begins a run, whose weights are version 0.
  explicit LossScale(const LossScaleState& state) : state_(state), scales_{state.scale} {}

  /// For micro-batches whose loss is computed with this version of the weights.
  double at(int64_t version) const;
  /// The norm of the next step's gradients: whether the step is made. After kGrowthSteps steps the
  /// scale doubles; a step that is left out halves it. Throws RuntimeError when gradients are not
  /// finite although the scale is 1.
  bool take(double norm);
  const LossScaleState& state() const { return state_; }

  static constexpr int64_t kGrowthSteps = 2000;

 private:
  LossScaleState state_;
  std::vector<double> scales_;  ///< by version
};

}  // namespace penstock::runtime
