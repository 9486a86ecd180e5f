// A PyTorch program (.pt2) as a model that can be profiled, planned, cut and trained.
//
//   Model model = import_model("resnet18.pt2");
//
// Layers are groups of operators named after the user's modules; initial weights are those of the
// file. Export in training mode with a dynamic batch: docs/import.md.
#pragma once

#include <string>
#include <vector>

#include "penstock/exported/program.h"
#include "penstock/imported/import_options.h"
#include "penstock/model/model.h"

namespace penstock::imported {

/// With adapters these alone are trained (model.adapters()). Throws ConfigError naming the file,
/// with every reason why it cannot be trained here: operators that this libtorch lacks, inputs
/// whose batch is fixed, what read_program() refuses. The file is read again when weights are made,
/// and must not change meanwhile.
model::Model import_model(const std::string& path, const ImportOptions& options = {});

/// What a user should know of a model of import_model(): why most of it is one layer, which sizes
/// are fixed. Empty: nothing.
std::string note_of(const model::Model& model);

/// Whether it is a model of import_model().
bool is_program(const model::Model& model);

/// Whether a --model names a file: it ends in ".pt2".
bool is_program_file(const std::string& name);

}  // namespace penstock::imported
