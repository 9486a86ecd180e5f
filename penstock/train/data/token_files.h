// Tokens as they lie in files: one long row of whole numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "penstock/train/data/dataset.h"
#include "penstock/train/data/stored_array.h"
#include "penstock/util/files/file_bytes.h"

namespace penstock::train {

/// The maximum of one file of tokens.
inline constexpr int64_t kMostTokenBytes = int64_t{1} << 40;

/// Numbers of this type that fill a file from byte `start` on. Throws ConfigError when its size
/// does not fit.
StoredArray tokens_in(const std::shared_ptr<const FileBytes>& bytes, size_t start,
                      const NumberType& type);
/// A .bin file: uint16, with or without llm.c's header; uint32 under its header of version 7.
StoredArray read_tokens(const std::string& file);
/// The tokens as samples of a language model (TokenDataset). Throws ConfigError when they are no
/// row of whole numbers.
std::shared_ptr<const Dataset> language_data(const DataSpec& spec, const std::string& name,
                                             const StoredArray& tokens);

}  // namespace penstock::train
