#include "penstock/frames/opencv/jpeg_end.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock::frames {
namespace {

const std::string kBegin("\xFF\xD8", 2);
const std::string kEnd("\xFF\xD9", 2);

/// A segment with this mark and content.
std::string segment(char mark, const std::string& content) {
  const size_t length = content.size() + 2;
  return std::string{'\xFF', mark, static_cast<char>(length >> 8), static_cast<char>(length)} +
         content;
}
/// The head of a scan and its compressed bytes, with a stuffed one and a restart among them.
const std::string kScan = segment('\xDA', "head") + std::string(
                                                        "abc\xFF\x00"
                                                        "def\xFF\xD0"
                                                        "ghi",
                                                        13);

TEST(JpegEnd, AWholePictureHasOne) {
  EXPECT_TRUE(is_jpeg(kBegin + segment('\xE0', "JFIF")));
  EXPECT_TRUE(has_jpeg_end(kBegin + segment('\xE0', "JFIF") + kScan + kEnd));
  EXPECT_TRUE(has_jpeg_end(kBegin + kScan + segment('\xC4', "table") + kScan + kEnd))
      << "progressive: several scans";
  EXPECT_TRUE(has_jpeg_end(kBegin + kScan + "\xFF" + kEnd)) << "marks may be filled up";
  EXPECT_TRUE(has_jpeg_end(kBegin + kScan + kEnd + "a film behind the picture"));
}

TEST(JpegEnd, ACutPictureHasNoneWhereverItIsCut) {
  const std::string preview = segment('\xE1', kBegin + kScan + kEnd);
  const std::string whole = kBegin + preview + kScan + kScan + kEnd;
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(has_jpeg_end(whole.substr(0, size))) << size << ": the preview's end is none";
  EXPECT_TRUE(has_jpeg_end(whole));
}

TEST(JpegEnd, OtherFilesAreNoJpeg) {
  EXPECT_FALSE(is_jpeg(""));
  EXPECT_FALSE(is_jpeg("\x89PNG"));
  EXPECT_FALSE(is_jpeg(kBegin));
}

}  // namespace
}  // namespace penstock::frames
