#include "penstock/util/text/printable.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace penstock {
namespace {

TEST(Printable, KeepsUtf8AndReplacesWhatControlsATerminal) {
  EXPECT_EQ(printable("conv1 名前 é"), "conv1 名前 é");
  EXPECT_EQ(printable("a\x1b[31mb\x07\n"), "a?[31mb??");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "?31m")
      << "the one-character form of escape";
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "exe.txt"),
            "?exe.txt")
      << "right to left override";
  EXPECT_EQ(printable("\xff\xc3x"), "??x");
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80\xf5\x80\x80\x80"), "?????????")
      << "overlong, surrogate, beyond the last character";
  EXPECT_EQ(printable("\xe5\x90"), "??") << "cut off";
}

TEST(Printable, EscapedIsSafeInMarkup) {
  EXPECT_EQ(escaped("<a href=\"x\">'&'</a>\x01"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;?");
}

TEST(Printable, ShortenedCutsWholeCharacters) {
  EXPECT_EQ(shortened("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(shortened("abcdefghijk", 10), "abcd..hijk");
  EXPECT_EQ(shortened("名前の長い層の名前", 10), "名前..名前");
}

RC_GTEST_PROP(Printable, ShortenedFitsForAnyBytes, (const std::string& text)) {
  const auto most = *rc::gen::inRange<size_t>(4, 40);
  const std::string result = shortened(text, most);
  RC_ASSERT(display_width(result) <= most);
  RC_ASSERT(printable(result) == result);
}

}  // namespace
}  // namespace penstock
