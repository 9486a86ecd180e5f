#include "penstock/frames/known_files.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace penstock::frames {
namespace {

TEST(KnownFiles, AreToldByTheirFirstBytes) {
  const std::pair<std::string, std::string> kFiles[] = {
      {"YUV4MPEG2 W8 H8 F25:1\n", "a YUV4MPEG2 video (.y4m)"},
      {std::string("\0\0\0\x20"
                   "ftypisom",
                   12),
       "an MP4 or QuickTime video"},
      {std::string("RIFF\x10\0\0\0AVI LIST", 16), "an AVI video"},
      {std::string("\x89PNG\r\n\x1A\n\0\0\0\rIHDR", 16), "a PNG image"},
      {std::string("\xFF\xD8\xFF\xE0\0\x10JFIF", 10), "a JPEG image"},
      {std::string("\x1F\x8B\x08\0abcd\0\x03", 10), "a gzip file"},
      {std::string("\x1A\x45\xDF\xA3\x9F", 5), "a Matroska or WebM video"},
      {"P6\n640 480\n255\n", "a PPM or PGM image"},
      {"BZh91AY&SY", "a bzip2 file"}};
  for (const auto& [begin, name] : kFiles) EXPECT_EQ(known_file(begin), name);
}

TEST(KnownFiles, PlainColoursAreNone) {
  for (int colour = 0; colour < 1 << 24; colour += 997) {
    const std::string pixel{static_cast<char>(colour >> 16), static_cast<char>(colour >> 8),
                            static_cast<char>(colour)};
    std::string row;
    while (row.size() < kKnownFileBytes) row += pixel;
    ASSERT_EQ(known_file(row), "") << colour;
  }
  EXPECT_EQ(known_file(std::string("\x1F\x8B\x08\x1F\x8B\x08\x1F\x8B\x08\x1F", 10)), "");
  EXPECT_EQ(known_file(""), "");
  EXPECT_EQ(known_file("RIFF"), "") << "too few bytes";
}

}  // namespace
}  // namespace penstock::frames
