// Clips with their captions, wherever they come from, on their way to a folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/text/clean.h"
#include "penstock/text/corpus.h"

namespace penstock::captions {

/// What the numbers of a frame are: bytes of a picture [3, side, side], or features that another
/// network has made of it.
enum class FrameKind : uint8_t { Pixels, Features };

struct CaptionSource {
  FrameKind kind = FrameKind::Pixels;
  int64_t frames = 0;   ///< of every clip
  int64_t numbers = 0;  ///< of every frame
  /// By part and clip: at least one caption each.
  std::array<std::vector<std::vector<std::string>>, text::kParts> captions;
  /// Appends a clip's frames * numbers numbers, bytes or float32. Called clip by clip.
  std::function<void(text::Part part, size_t clip, std::string& bytes)> read;
  std::vector<text::Origin> origins;
  std::vector<std::string> notes;  ///< what a user should know, a sentence each
  /// Of the test's clips, the share whose pictures are in a clip of train together; below 0: not
  /// known.
  double pairs_recur = -1;
};

/// Throws ConfigError for a share of valid or test that is not from 0 to 0.5.
void check_shares(const text::SplitShares& shares);

}  // namespace penstock::captions
