// Readers of the user's own data.
#pragma once

#include <string>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

// Bad samples (TensorDataset::bad_samples(), images that cannot be decoded) are left out with a
// warning, or an error; of images, when they are needed. Each reader throws ConfigError and
// ParseError naming file and array.

/// .npz: arrays by name, the samples along their first dimension; array_choice.h says which ones.
DataParts read_array_file(const DataSpec& spec, const std::string& file);
/// .npy: one row of tokens.
DataParts read_token_file(const DataSpec& spec, const std::string& file);
/// .bin: the same as uint16, with or without llm.c's header; under its header of version 7 as
/// uint32.
DataParts read_binary_file(const DataSpec& spec, const std::string& file);
/// .txt: the same, its bytes; for models of few tokens, or where DataSpec::bytes_are_tokens.
DataParts read_text_file(const DataSpec& spec, const std::string& file);
/// .csv: images by name, with their classes (image_table.h).
DataParts read_table_file(const DataSpec& spec, const std::string& file);
/// Images in a folder per class, or such folders as parts (image_tree.h).
DataParts read_image_folder(const DataSpec& spec, const std::string& folder);

}  // namespace penstock::train
