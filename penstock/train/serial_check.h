// Checks with the user's own model and data that the pipeline computes the same as one worker.
//
//   SerialCheck check = check_against_serial(model, data, options, 20);
//   if (!check.equal()) std::cout << "step " << check.first_difference << '\n';
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/trainer.h"

namespace penstock::train {

/// Two runs of the same training. Everything is compared bit for bit under the flush policy without
/// teams, to `tolerance` (of the larger magnitude) otherwise.
struct SerialCheck {
  std::string reference;  ///< what the run was compared with, for the user
  double tolerance = 0;   ///< 0: bit for bit
  std::vector<double> losses;
  std::vector<double> reference_losses;
  /// Where boundaries are coded: of the same training without codings; otherwise empty.
  std::vector<double> uncoded_losses;
  std::vector<double> grad_norms;  ///< both empty unless norms are recorded
  std::vector<double> reference_grad_norms;
  /// Position of the first step whose loss or norm differs; -1: none.
  int64_t first_difference = -1;
  double largest_difference = 0;  ///< of losses, relative
  /// The first weight ("fc1.weight") that differs after the last step; empty: none.
  std::string first_weight;
  /// Otherwise weights may differ by whole steps: members of a team sum in another order, and the
  /// optimiser makes steps of one size of the rounding where a gradient is zero.
  bool compares_weights = true;

  /// By how much the mean of `losses` is above that of `uncoded_losses`, as a share of the latter;
  /// 0 where nothing is coded.
  double loss_above_uncoded() const;
  bool equal() const { return first_difference < 0 && first_weight.empty(); }
};

/// Trains for at most `steps` steps with the plan, and again as reference: under flush on one
/// worker, with the same micro-batches, groups of gradients and coded boundaries; under a policy
/// that delays weights in a single thread that replays the delays (serial_replay.h), and so under
/// `diloco`, where each copy of the pipeline makes its own steps in turn, and `powersgd`. Starts
/// from fresh weights, without evaluation, checkpoints or observers. With TrainOptions::world, rank
/// 0 makes the reference and compares; elsewhere the result is empty. Throws ConfigError (steps <
/// 1, or recomputation under "latest", whose activations come from two versions), RuntimeError when
/// stopped before the end, and the errors of train().
SerialCheck check_against_serial(const model::Model& model, const DataSplit& data,
                                 const TrainOptions& options, int64_t steps);

}  // namespace penstock::train
