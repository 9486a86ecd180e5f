#include "penstock/text/sources/verse_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/sources/testing_binaries.h"
#include "penstock/util/error.h"

namespace penstock::text {
namespace {

using testing::HasSubstr;

std::string verse_refusal(const VerseBytes& files) {
  try {
    parse_verses({.blocks = files.blocks, .verses = files.verses, .packed = files.packed},
                 "ot.bzv");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "";
}

const VerseBytes kGood = verse_bytes({{"", "In the beginning", "And"}, {"Now these"}});

VerseBytes with(std::string VerseBytes::*file, size_t at, uint32_t value, int size = 4) {
  VerseBytes files = kGood;
  (files.*file).replace(at, static_cast<size_t>(size), number_bytes(value, size));
  return files;
}

TEST(VerseFile, EntriesComeInTheirOrderWithTheirBlocks) {
  const auto entries = parse_verses(
      {.blocks = kGood.blocks, .verses = kGood.verses, .packed = kGood.packed}, "ot.bzv");
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].text, "");
  EXPECT_EQ(entries[1].text, "In the beginning");
  EXPECT_EQ(entries[3].text, "Now these");
  EXPECT_EQ(entries[3].block, 1u);
}

TEST(VerseFile, DamageIsFoundAndSaid) {
  EXPECT_EQ(verse_refusal(kGood), "");
  EXPECT_THAT(verse_refusal(with(&VerseBytes::verses, 10, 2)), HasSubstr("in block 2 of 2"));
  EXPECT_THAT(verse_refusal(with(&VerseBytes::verses, 14, 0xFFFFFFFF)),
              HasSubstr("entry 1 ends behind its block"));
  EXPECT_THAT(verse_refusal(with(&VerseBytes::verses, 18, 0xFFFF, 2)), HasSubstr("65535 bytes"));
  EXPECT_THAT(verse_refusal(with(&VerseBytes::blocks, 0, 0xFFFFFFFF)),
              HasSubstr("block 0 ends behind its file"));
  EXPECT_THAT(verse_refusal(with(&VerseBytes::blocks, 8, 0xFFFFFFFF)),
              HasSubstr("cannot have 4294967295 bytes"));
  EXPECT_THAT(verse_refusal(with(&VerseBytes::blocks, 8, 18)), HasSubstr("block 0 is damaged"));
  EXPECT_THAT(verse_refusal(with(&VerseBytes::packed, 4, 0x12345678)), HasSubstr("is damaged"));
  VerseBytes cut = kGood;
  cut.verses.pop_back();
  EXPECT_THAT(verse_refusal(cut), HasSubstr("expected a multiple of 10"));
  cut = kGood;
  cut.blocks.pop_back();
  EXPECT_THAT(verse_refusal(cut), HasSubstr("expected a multiple of 12"));
  cut = kGood;
  cut.packed.resize(10);
  EXPECT_THAT(verse_refusal(cut), HasSubstr("ends behind its file"));
}

TEST(VerseFile, VersesThatOverlapAreNoGigabytes) {
  VerseBytes files = verse_bytes({{std::string(60'000, 'x')}});
  const std::string verse = files.verses;
  for (int i = 0; i < 10'000; ++i) files.verses += verse;
  EXPECT_THAT(verse_refusal(files), HasSubstr("verses overlap"));
}

TEST(VerseFile, NoChangedByteCrashes) {
  for (std::string VerseBytes::*file :
       {&VerseBytes::blocks, &VerseBytes::verses, &VerseBytes::packed}) {
    for (size_t at = 0; at < (kGood.*file).size(); ++at) {
      for (const uint32_t value : {0u, 1u, 127u, 255u}) verse_refusal(with(file, at, value, 1));
    }
  }
}

}  // namespace
}  // namespace penstock::text
