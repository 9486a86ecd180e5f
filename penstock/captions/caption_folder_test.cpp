#include "penstock/captions/caption_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/testing_folder.h"

namespace penstock::captions {
namespace {

using text::Part;
using text::TestFolder;

CaptionSource three_clips() {
  CaptionSource source{
      .kind = FrameKind::Pixels,
      .frames = 2,
      .numbers = 3,
      .captions = {},
      .read = {},
      .origins = {{.name = "made", .version = "1", .licence = "none", .files = {}}},
      .notes = {"a note"}};
  source.captions[index_of(Part::Train)] = {{"A man rides.", "A horse, running!"}, {"the cat"}};
  source.captions[index_of(Part::Test)] = {{"a MAN rides", "nobody"}};
  source.read = [](Part part, size_t clip, std::string& bytes) {
    bytes.append(6, static_cast<char>(10 * static_cast<int>(part) + static_cast<int>(clip)));
  };
  return source;
}

TEST(CaptionFolder, HasFramesWordsAndWhereTheyCameFrom) {
  const TestFolder folder;
  const PreparedCaptions made =
      write_captions(three_clips(), {.output = folder.path() / "out", .command = "typed"});
  EXPECT_EQ(made.captions_recur, 0.5);
  EXPECT_EQ(made.parts[index_of(Part::Train)].captions, 3);
  EXPECT_EQ(made.parts[index_of(Part::Train)].words.longest, 3);
  EXPECT_EQ(made.parts[index_of(Part::Test)].words.unknown, 1);  // "nobody"
  EXPECT_EQ(folder.read("out/test.target.txt"), "a man rides\nnobody\n");
  const std::string frames = folder.read("out/train.frames.npy");
  EXPECT_THAT(frames, testing::HasSubstr("'shape': (2, 2, 3)"));
  EXPECT_EQ(frames.substr(frames.size() - 12), std::string(6, '\0') + std::string(6, '\1'));
  const std::string clips = folder.read("out/train.clips.npy");
  EXPECT_EQ(clips.substr(clips.size() - 12), std::string("\0\0\0\0\0\0\0\0\1\0\0\0", 12));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out/valid.frames.npy"));
  EXPECT_EQ(made.manifest["task"], "captions");
  EXPECT_EQ(made.manifest["frames"]["numbers"], 3);
  EXPECT_EQ(made.manifest["sources"][0]["licence"], "none");
  EXPECT_EQ(made.manifest["command"], "typed");
}

TEST(CaptionFolder, CaptionsArePlainWords) {
  EXPECT_EQ(plain_caption("A man's dog, 3 years old -- runs!"), "a man's dog 3 years old runs");
  EXPECT_EQ(plain_caption("Ein Café."), "ein café");
  EXPECT_EQ(plain_caption("?!"), "");
}

}  // namespace
}  // namespace penstock::captions
