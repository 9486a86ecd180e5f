// Readers of the user's own data.
#pragma once

#include <string>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

// Bad samples (TensorDataset::bad_samples(), images that cannot be decoded) are left out with a
// warning, or an error; of images, when they are needed. Each reader throws ConfigError and
// ParseError naming file and array.

/// .npz: arrays by name, the samples along their first dimension. An input's array has the input's
/// name; where a model has one input, any array that is left is it. Targets are the array
/// "targets", "target", "labels", "label" or "y". Arrays whose names end in _train and _test are
/// those two parts.
DataParts read_array_file(const DataSpec& spec, const std::string& file);
/// .npy: one row of tokens.
DataParts read_token_file(const DataSpec& spec, const std::string& file);
/// .txt: the same, its bytes.
DataParts read_text_file(const DataSpec& spec, const std::string& file);
/// Images in a folder per class (image_files.h), or such folders named train and test (or val).
DataParts read_image_folder(const DataSpec& spec, const std::string& folder);

}  // namespace penstock::train
