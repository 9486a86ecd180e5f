#include "penstock/captions/emoji_clips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "penstock/captions/emoji_names.h"
#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"

namespace penstock::captions {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using text::Part;
using text::TestFolder;

constexpr const char* kNames = R"(<?xml version="1.0" encoding="UTF-8" ?>
<ldml><annotations>
  <annotation cp="{">brace | open</annotation>
  <annotation cp="{" type="tts">open curly bracket</annotation>
  <annotation cp="😀">face | grin</annotation>
  <annotation cp="😀" type="tts">grinning  face</annotation>
  <annotation cp="❤" type="tts">red heart</annotation>
  <annotation cp="👨‍👩" type="tts">of several code points</annotation>
  <annotation cp="🤷" type="tts">A &amp; B</annotation>
</annotations></ldml>)";

TEST(EmojiNames, AreThoseThatAreReadAloud) {
  const TestFolder folder;
  EXPECT_THAT(read_emoji_names(folder.write("en.xml", kNames)),
              ElementsAre(EmojiName{0x2764, "red heart"}, EmojiName{0x1F600, "grinning face"},
                          EmojiName{0x1F937, "A & B"}));
  EXPECT_THAT([&] { return read_emoji_names(folder.path() / "de.xml"); },
              ThrowsMessage<ConfigError>(HasSubstr("apt-get install unicode-cldr-core")));
  EXPECT_THAT([&] { return read_emoji_names(folder.write("x.xml", "<ldml/>")); },
              ThrowsMessage<ParseError>(HasSubstr("names of emoji, found none")));
}

TEST(EmojiFont, SaysWhatIsMissing) {
  const TestFolder folder;
  EXPECT_THAT([&] { EmojiFont(folder.path() / "x.ttf"); },
              ThrowsMessage<ConfigError>(HasSubstr("apt-get install fonts-noto-color-emoji")));
  EXPECT_THAT([&] { EmojiFont(folder.write("x.ttf", "no font")); },
              ThrowsMessage<ConfigError>(HasSubstr("does not know it as a font")));
}

bool has_packages() {
  return std::filesystem::exists(kEmojiFont) && std::filesystem::exists(kCldrFolder);
}

TEST(EmojiFont, HasPicturesOfOneSize) {
  if (!has_packages()) GTEST_SKIP() << "fonts-noto-color-emoji is not installed";
  EmojiFont font((std::filesystem::path(kEmojiFont)));
  const std::optional<Picture> heart = font.picture(0x2764);
  ASSERT_TRUE(heart);
  EXPECT_EQ(heart->width, 136);
  EXPECT_EQ(heart->height, 128);
  const size_t middle = 64 * 136 + 68;
  EXPECT_GT(heart->pixels[3 * middle], 150);  // red
  EXPECT_LT(heart->pixels[3 * middle + 1], 100);
  EXPECT_EQ(heart->shares[middle], 255);
  EXPECT_EQ(heart->shares[0], 0);
  EXPECT_FALSE(font.picture('q'));
}

EmojiRequest small_request() {
  EmojiRequest request{.names = {}};
  request.clips = 200;
  request.pictures = 8;
  request.size = {.frames = 3, .side = 16};
  request.shares = {.valid = 0.1, .test = 0.1, .seed = 7};
  return request;
}

TEST(EmojiClips, HaveNoPairInTwoParts) {
  if (!has_packages()) GTEST_SKIP() << "fonts-noto-color-emoji is not installed";
  const CaptionSource source = emoji_clips(small_request());
  EXPECT_EQ(source.captions[index_of(Part::Train)].size(), 160u);
  EXPECT_EQ(source.captions[index_of(Part::Valid)].size(), 20u);
  EXPECT_EQ(source.captions[index_of(Part::Test)].size(), 20u);
  EXPECT_EQ(source.pairs_recur, 0);
  std::array<std::set<std::string>, 2> captions;
  for (const auto& [i, part] : {std::pair(0, Part::Train), {1, Part::Test}}) {
    for (const auto& of_clip : source.captions[index_of(part)])
      captions[static_cast<size_t>(i)].insert(of_clip.at(0));
  }
  for (const std::string& caption : captions[1]) EXPECT_FALSE(captions[0].contains(caption));
  std::string bytes, again;
  source.read(Part::Test, 3, bytes);
  emoji_clips(small_request()).read(Part::Test, 3, again);
  EXPECT_EQ(bytes.size(), 3u * 3 * 16 * 16);
  EXPECT_EQ(bytes, again);
  EmojiRequest other = small_request();
  other.shares.seed = 8;
  EXPECT_NE(emoji_clips(other).captions, source.captions);
}

TEST(EmojiClips, RefuseWhatCannotBe) {
  const auto refused = [](auto change) {
    return [change] {
      EmojiRequest request = small_request();
      change(request);
      return emoji_clips(request);
    };
  };
  EXPECT_THAT(refused([](EmojiRequest& r) { r.clips = 0; }),
              ThrowsMessage<ConfigError>(HasSubstr("the number of clips must be from 3")));
  EXPECT_THAT(refused([](EmojiRequest& r) { r.size.side = 8; }),
              ThrowsMessage<ConfigError>(HasSubstr("the side of a frame must be from 16")));
  EXPECT_THAT(refused([](EmojiRequest& r) { r.shares.test = 2; }),
              ThrowsMessage<ConfigError>(HasSubstr("the share of test must be from 0 to 0.5")));
  EXPECT_THAT(refused([](EmojiRequest& r) { r.font = "none.ttf"; }),
              ThrowsMessage<ConfigError>(HasSubstr("apt-get install")));
}

}  // namespace
}  // namespace penstock::captions
