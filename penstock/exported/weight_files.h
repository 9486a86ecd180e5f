// Weights that lie beside a program, in safetensors files, as penstock.export(weights=...) leaves
// them. Internal to exported. docs/formats.md has the reference that the .pt2 file holds.
//
//   place_weights(archive.read("net/extra/penstock_weights.json", kMost), program);
#pragma once

#include <string>

#include "penstock/exported/program.h"

namespace penstock::exported {

/// Gives those tensors of the program that the reference names their places in the files. A folder
/// that is no absolute path begins where the program's file is. Reads the files' headers, not their
/// weights. Throws ParseError for a text that is no reference, ConfigError naming file and tensor:
/// a file that is missing, of another size or with another header than when the program was
/// exported; a tensor that is not in its file, or of another type or shape than the program's; one
/// whose values are in the .pt2 file, too.
void place_weights(const std::string& text, Program& program);

}  // namespace penstock::exported
