// The user's own videos, or features of their frames, with captions: as MSVD comes, and others.
//
//   clips/a.avi, clips/b.npy ...   beside clips/captions.txt: "a a man is riding a horse"
//   CaptionSource source = captioned_folder({.folder = "clips"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "penstock/captions/caption_source.h"
#include "penstock/text/clean.h"

namespace penstock::captions {

struct FolderRequest {
  std::filesystem::path folder;
  /// Empty: captions.txt or captions.csv of the folder.
  std::filesystem::path captions = {};
  int64_t frames = 16;  ///< taken of each clip, evenly spread
  int side = 32;        ///< that pictures are resized to
  text::SplitShares shares = {.valid = 0.05, .test = 0.05};
};

/// Captions, one a line:
///   .txt   the clip's name, a space or tab, the caption
///   .csv   columns video, video_id, name or file, and caption, sentence or description; or MSVD's
///          VideoID, Start, End, Language and Description, of clips VideoID_Start_End: English ones
/// A clip is NAME.npy, float32 [frames, numbers], or a video NAME.avi, .mp4, .mkv, .mov or .webm;
/// in the folder, or in its folders `features`, `videos` or `clips`. All are of one kind. Names in
/// train_list.txt, valid_list.txt and test_list.txt divide them; otherwise the seed does. Clips
/// without a file, files without a caption, and names in lists that are neither are left out; how
/// many clips and names, the notes say. Throws ConfigError and
/// ParseError: no captions, no clips, clips of both kinds, what cannot be read.
CaptionSource captioned_folder(const FolderRequest& request);

}  // namespace penstock::captions
