// Which pieces of a compiled model are used: those that are faster than their layers one by one.
//
//   const std::string choice = choose_pieces(compiled.model, threads);
//   const model::Model chosen = with_pieces(compiled.model, choice);
#pragma once

#include <string>
#include <vector>

#include "penstock/model/model.h"

namespace penstock::compiled {

/// A letter per piece, in the order of the layers: '1' for one that is used. Times are measured
/// once, with so many intra-op threads, and kept beside the packages; that needs memory for the
/// weights and gradients of a piece meanwhile. The variable PENSTOCK_COMPILE_ALL=1 takes all.
/// A piece whose passes fail is not used.
std::string choose_pieces(const model::Model& model, int threads);

/// The model with these pieces alone. `choice`: as choose_pieces() returns it, for this model.
model::Model with_pieces(const model::Model& model, const std::string& choice);

/// A line per piece that the choice leaves out, saying why.
std::vector<std::string> notes_of_choice(const model::Model& model, const std::string& choice);

}  // namespace penstock::compiled
