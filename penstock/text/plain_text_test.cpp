#include "penstock/text/plain_text.h"

#include <gtest/gtest.h>

namespace penstock::text {
namespace {

TEST(PlainText, SpacesAreThoseOfUnicodeAndControlCharactersCountAsSpaces) {
  EXPECT_EQ(single_spaced("  a\u00a0b\t\r\n\u2028c\x01 d "), "a b c d");
  EXPECT_EQ(single_spaced(" \n\u3000"), "");
  EXPECT_EQ(count_words(single_spaced(" one  two\u2003three ")), 3);
  EXPECT_EQ(count_words(""), 0);
}

TEST(PlainText, WhatIsNoUtf8IsFoundAndReplaced) {
  EXPECT_EQ(first_invalid_utf8("äöü€𝄞"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("ab\xFF"), 2u);
  EXPECT_EQ(first_invalid_utf8("a\xC3"), 1u) << "cut off";
  EXPECT_EQ(first_invalid_utf8("\xC0\xAF"), 0u) << "too long a form";
  EXPECT_EQ(first_invalid_utf8("\xED\xA0\x80"), 0u) << "half of a pair";
  EXPECT_EQ(first_invalid_utf8("\xF4\x90\x80\x80"), 0u) << "above U+10FFFF";
  EXPECT_EQ(single_spaced("a\xFFz"), "a\uFFFDz");
}

TEST(PlainText, EveryCodePointSurvivesBeingWrittenAndRead) {
  for (uint32_t code = 0; code <= 0x10FFFF; code += code < 0x3000 ? 1 : 97) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(code, text);
    size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), code);
    ASSERT_EQ(at, text.size());
  }
}

TEST(PlainText, LowerCaseCoversTheAlphabetsThatHaveOne) {
  EXPECT_EQ(folded("ÄÖÜ STRAẞE Ñandú ŽĽŸ ΑΩ ЁЖ ԱՖ Ǝ×"), "äöü straße ñandú žľÿ αω ёж աֆ Ǝ×");
  EXPECT_EQ(folded("ÅÉÎÇ ŁŃŐŔ Ắ"), "åéîç łńőŕ ắ");
}

TEST(PlainText, LettersLeaveOutDigitsAndPunctuation) {
  EXPECT_EQ(letters_of("Click „OK“ (2) – then 3.5 %!"), "click ok then");
  EXPECT_EQ(letters_of("12.5"), "");
}

}  // namespace
}  // namespace penstock::text
