// Whether a sample's result depends on the other samples of its batch.
#pragma once

#include "penstock/model/model.h"

namespace penstock::model {

/// Compares the first output, in evaluation mode, of four random samples together with that of two
/// and two. Batch normalisation, which takes its running statistics there, is no mixing; nor is a
/// loss of the model's own that is a mean over samples. A model that draws random numbers even in
/// evaluation, and one that fails, count as not mixing. Blocks for the initial weights and three
/// passes forward.
bool mixes_samples(const Model& model);

}  // namespace penstock::model
