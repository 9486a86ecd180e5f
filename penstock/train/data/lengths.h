// How sequences of different lengths share a mini-batch: what they are padded to, and which of them
// come together.
//
//   const auto order = training_order(data, {.seed = 1, .epoch = 0, .lengths = Lengths::Bucketed});
//   const EpochBatches batches(data, order, 0, cut, seed, Lengths::Bucketed);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/profile/lengths.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/data/length_choice.h"

namespace penstock::train {

struct TrainingOrder {
  uint64_t seed = 1;
  int64_t epoch = 0;
  bool shuffle = true;
  Lengths lengths = Lengths::Whole;
  int64_t mini_batch_size = 1;  ///< of Bucketed
  /// Of Bucketed: mini-batches of neighbouring lengths that stay one behind the other. Where
  /// several are under way in a pipeline, unlike ones wait for each other.
  int64_t run = 1;
  /// Samples are windows of one text, which is read as so many parts at once: mini-batch k has the
  /// k-th window of each part. Windows that are left over are left out. 0: they are not; otherwise
  /// the mini-batch's samples, and nothing is shuffled.
  int64_t streams = 0;
};

/// TrainingOrder::run of pipelines that do not flush.
inline constexpr int64_t kLengthRun = 8;

/// The samples of an epoch: epoch_order(), and under Bucketed, of each 100 mini-batches' samples
/// those of like length together, runs of their mini-batches in random order (shuffled) or
/// ascending. Samples that do not fill a mini-batch stay at the end. With `streams` see there.
/// Depends on the data and `order` only. O(samples log samples).
std::vector<int64_t> training_order(const Dataset& data, const TrainingOrder& order);

/// The order of TrainingOrder::streams.
std::vector<int64_t> stream_order(int64_t samples, int64_t streams);

/// The first `sizes` of each sample: [n, ...]. Undefined tensors stay so.
at::Tensor cut_to(const at::Tensor& tensor, const model::Shape& sizes);

/// What mini-batches of an epoch are padded to, as at most `groups` lengths by their numbers of
/// places, each with the mean of its mini-batches, and the longest of all by itself: what a profile
/// measures. Empty: all have the sizes of sample(), as under Whole.
std::vector<profile::LengthGroup> length_groups(const Dataset& data, const TrainingOrder& order,
                                                int64_t groups);

/// About the share of places of the inputs that hold no padding where samples are padded to
/// sample(), from a thousand of them. 1 where nothing is padded.
double filled_share(const Dataset& data);

/// Why the model does not take the sizes of some samples: names the layer; empty: it takes those of
/// 64 samples that were tried.
std::string why_not_shorter(const model::Model& model, const Dataset& data);

}  // namespace penstock::train
