// A folder of tokens as `penstock data` makes it (docs/formats.md): manifest.json, one vocabulary,
// and the parts train, valid and test.
//
//   const TokenFolder folder("mine");
//   folder.task == TokenTask::Translation;
//   DataParts parts = read_token_folder(spec, "mine");
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "penstock/text/pieces.h"
#include "penstock/train/data/dataset.h"
#include "penstock/train/data/sentences.h"

namespace penstock::train {

enum class TokenTask : uint8_t { Text, Translation, Captions };

/// Of captions: what a clip is, and how many words the longest caption has.
struct ClipSizes {
  int64_t frames = 0;
  int64_t numbers = 0;      ///< of a frame
  bool are_pixels = false;  ///< bytes
  int64_t words = 0;
};

/// What the manifest says.
struct TokenFolder {
  /// Throws ConfigError and ParseError naming the manifest.
  explicit TokenFolder(std::filesystem::path folder);

  std::filesystem::path path;
  TokenTask task = TokenTask::Text;
  int64_t vocabulary = 0;  ///< tokens are below it
  SpecialTokens special = {};
  text::Unwritten unwritten = {};
  ClipSizes clips = {};
};

/// Its parts `train` and `test`, if it has one, as samples of the model: windows of a text
/// (TokenDataset), pairs of sentences (PairDataset), clips (CaptionDataset). Throws ConfigError
/// when the model knows fewer tokens than the vocabulary has.
DataParts read_token_folder(const DataSpec& spec, const std::string& folder);

}  // namespace penstock::train
