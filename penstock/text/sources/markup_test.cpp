#include "penstock/text/sources/markup.h"

#include <gtest/gtest.h>

#include <chrono>

namespace penstock::text {
namespace {

/// Pieces as text: [name|attributes], [/name], [name/], and text as it stands.
std::string pieces(std::string_view text) {
  std::string result;
  MarkupScanner scanner(text);
  for (MarkupPiece piece; scanner.next(piece);) {
    const std::string name(piece.name);
    switch (piece.kind) {
      case MarkupKind::Text:
        result += piece.content;
        break;
      case MarkupKind::Open:
        result += "[" + name + "|" + std::string(piece.content) + "]";
        break;
      case MarkupKind::Close:
        result += "[/" + name + "]";
        break;
      case MarkupKind::Empty:
        result += "[" + name + "/]";
        break;
    }
  }
  return result;
}

TEST(Markup, TagsAndTextComeInTheirOrder) {
  EXPECT_EQ(pieces("<p class=\"x\">a<br/>b</p>c"), "[p| class=\"x\"]a[br/]b[/p]c");
  EXPECT_EQ(pieces("<a t='1>2'>x</a>"), "[a| t='1>2']x[/a]");
  EXPECT_EQ(pieces("<!DOCTYPE html><?xml ?><!-- <p> --><script>if (a<b) \"</p>\"</script>x"),
            "[script|]x");
}

TEST(Markup, WhatIsNoMarkupIsText) {
  EXPECT_EQ(pieces("1 < 2 and <3"), "1 < 2 and <3");
  EXPECT_EQ(pieces("a <p never ends"), "a <p never ends");
  EXPECT_EQ(pieces("<"), "<");
  EXPECT_EQ(pieces("</"), "</");
  EXPECT_EQ(pieces("a <!-- never ends"), "a ");
  EXPECT_EQ(pieces("<p x=\"never ends> <b>"), "<p x=\"never ends> <b>");
}

TEST(Markup, TakesTimeInProportionToTheText) {
  std::string text;
  while (text.size() < 2'000'000) text += "<a b=\"";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(pieces(text).size(), text.size());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Markup, AttributesAreFoundByTheirWholeName) {
  EXPECT_EQ(attribute(" data-id=\"1\" id='2' class=\"\"", "id"), "2");
  EXPECT_EQ(attribute(" data-id=\"1\"", "id"), "");
  EXPECT_EQ(attribute(" id=2", "id"), "");
}

TEST(Markup, EntitiesAreReplacedWhereTheyAreKnown) {
  std::string text;
  append_unescaped("&lt;a&gt; &amp;amp; &#228;&#xE4; &euro; & &#xD800; &#99999999; &", text);
  EXPECT_EQ(text, "<a> &amp; ää &euro; & &#xD800; &#99999999; &");
}

}  // namespace
}  // namespace penstock::text
