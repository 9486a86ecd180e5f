// Captioned clips as a folder for the trainer: frames, tokens of the captions, a vocabulary, and a
// manifest. docs/formats.md has it file by file.
//
//   const PreparedCaptions made = write_captions(emoji_clips({}), {.output = "emoji"});
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/captions/caption_source.h"
#include "penstock/text/token_folder.h"
#include "penstock/util/files/json.h"

namespace penstock::captions {

struct CaptionOutput {
  std::filesystem::path output;
  int64_t vocabulary = text::kMaxVocabulary;  ///< words at most; rarer ones are unknown
  uint64_t seed = 1;
  std::string command = {};  ///< for the manifest
};

struct CaptionCounts {
  int64_t clips = 0;
  int64_t captions = 0;
  text::SideCounts words;
};

struct PreparedCaptions {
  std::array<CaptionCounts, text::kParts> parts;
  double captions_recur = 0;  ///< of the test's captions, the share that is in train, too
  int64_t vocabulary = 0;
  std::vector<std::string> notes;
  Json manifest;
};

/// Lower case, without punctuation: what captions are compared and learned as.
std::string plain_caption(const std::string& caption);

/// Blocks while clips are read or drawn. Throws ConfigError and RuntimeError as token_folder.h, and
/// what the source throws.
PreparedCaptions write_captions(const CaptionSource& source, const CaptionOutput& output);

}  // namespace penstock::captions
