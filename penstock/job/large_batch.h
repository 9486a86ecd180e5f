// Carries out the rules of --large-batch (options/large_batch.h): sets what a run with a large
// mini-batch needs, and says so.
//
//   for (const LargeBatchNote& note : set_large_batch(request, model, /*training_samples=*/60'000))
//     fmt::print("{}: {}\n", note.rule, note.text);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/options/request.h"

namespace penstock::job {

struct LargeBatchNote {
  std::string rule;
  std::string text;     ///< what was set, or why nothing was
  bool is_set = false;  ///< something is otherwise than without the rule
};

/// Changes the request (rates, micro-batches) and how a model of the zoo begins. Empty without
/// request.large_batch.rules; otherwise a note of each rule in its order, also of those left out.
/// `training_samples`: of an epoch; 0: not known, so that request.rates.scale_steps counts. Throws
/// ConfigError where the warm-up needs that and it is not given.
std::vector<LargeBatchNote> set_large_batch(options::TrainRequest& request, model::Model& model,
                                            int64_t training_samples);

}  // namespace penstock::job
