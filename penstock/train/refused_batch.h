// Micro-batches on which a model cannot train, known before the first step: batch normalisation
// takes no single number per channel, and an exported program may be for more samples.
//
//   if (const auto refused = refused_batch(model, options, data.train->size()))
//     throw ConfigError(explain(*refused, "drop_last"));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/model/model.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/train_options.h"

namespace penstock::train {

struct RefusedBatch {
  std::string why;       ///< "layer 'bn1' cannot train on a micro-batch of 1 sample: ..."
  int64_t samples = 0;   ///< of the step that has the micro-batch
  int64_t of = 0;        ///< samples in all
  int64_t parts = 0;     ///< micro-batches of a full step
  bool is_rest = false;  ///< the step is the last one, which is not full
};

/// The first layer and micro-batch of `cut` that do not go together; nothing: all do.
std::optional<RefusedBatch> refused_batch(const model::Model& model, const BatchCut& cut);
/// The same of train() over so many training samples.
std::optional<RefusedBatch> refused_batch(const model::Model& model, const TrainOptions& options,
                                          int64_t samples);

/// What is wrong and what to do; `drop_last`: what a user calls TrainOptions::drop_last.
std::string explain(const RefusedBatch& refused, std::string_view drop_last);

}  // namespace penstock::train
