// Captioned clips out of two of Debian's packages: pictures of emoji that move in pairs, and their
// names. A pair of pictures is in one part alone, so that a test shows none that was learned.
//
//   CaptionSource source = emoji_clips({.clips = 4000, .pictures = 40});
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "penstock/captions/caption_source.h"
#include "penstock/captions/clip.h"
#include "penstock/text/clean.h"

namespace penstock::captions {

struct EmojiRequest {
  int64_t clips = 4000;   ///< of all parts
  int64_t pictures = 40;  ///< kinds of emoji
  ClipSize size = {};
  text::SplitShares shares = {.valid = 0.05, .test = 0.05};
  std::filesystem::path font = std::filesystem::path(kEmojiFont);
  std::filesystem::path names;  ///< a file of CLDR's annotations; empty: Debian's English one
};

/// Chooses emoji by the seed: those of one code point, with a name of up to three words, and a
/// picture that is not empty and no other's. Blocks while pictures are unpacked (a second). Throws
/// ConfigError: a package is missing, a number out of range, fewer emoji than asked for.
CaptionSource emoji_clips(const EmojiRequest& request);

}  // namespace penstock::captions
