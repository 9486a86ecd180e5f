// Sums over the samples of one mini-batch.
#pragma once

#include <cstdint>

namespace penstock::runtime {

struct MiniBatchStats {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t samples = 0;
  /// L2 norm of the mini-batch's gradient over all weights, before clipping; 0 where the schedule
  /// has no NORM. Not known yet in RunSetup::on_mini_batch.
  double gradient_norm = 0;
  double mean_loss() const { return samples > 0 ? loss_sum / static_cast<double>(samples) : 0; }
};

}  // namespace penstock::runtime
