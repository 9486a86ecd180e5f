// Whether a sample's result depends on the other samples of its batch.
#pragma once

#include "penstock/model/model.h"

namespace penstock::model {

/// Compares the first output, in evaluation mode, of random samples together with that of two parts
/// of them: several draws, of two sizes, with masks, scales and ignored labels that differ between
/// the parts. Batch normalisation, which takes its running statistics there, is no mixing; nor is a
/// loss of the model's own that is a mean over samples, or over the targets that it counts
/// (counts_targets.h). A model that draws random numbers even in evaluation, and one that fails,
/// count as not mixing. Large models are compared with two samples alone, and not at all where
/// is_too_large_to_compare(). Blocks for the initial weights and up to five passes forward for each
/// draw, some seconds in all.
bool mixes_samples(const Model& model);

/// Whether mixes_samples() would take too long, and looks at nothing. O(layers).
bool is_too_large_to_compare(const Model& model);

}  // namespace penstock::model
