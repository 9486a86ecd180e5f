// Writes the few SVG shapes that the pictures need, styled by class so that one style sheet serves
// light and dark. Internal to the reports.
//
//   Svg svg;
//   svg.rect({10, 10, 100, 40}, "card", 6);
//   svg.text(20, 34, "body", shortened(name, 14));   // escaped
//   std::string document = svg.document(120, 60, "A box");
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::report {

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

enum class Anchor : uint8_t { Start, Middle, End };

/// Class names: those of the style sheet in svg.cpp. Coordinates are pixels from the top left.
class Svg {
 public:
  void rect(const Box& box, std::string_view style, double radius = 0);
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  /// With an arrow head at its end; `path` in SVG's path language.
  void arrow(std::string_view path, bool accent);
  /// One line of text on the baseline y.
  void text(double x, double y, std::string_view style, std::string_view content,
            Anchor anchor = Anchor::Start);
  /// A rounded label in the accent colour with its right end at `right`; returns its left end.
  double pill(double right, double y, std::string_view content);
  /// What is drawn until close() shows `tooltip` under the pointer.
  void open(std::string_view tooltip);
  void close();

  /// The whole document. `label` is what a screen reader says.
  std::string document(double width, double height, std::string_view label) const;

 private:
  std::string body_;
};

/// How wide a text is drawn, estimated for the widest of the common sans serif fonts.
double text_width(std::string_view text, std::string_view style);

/// make(n) for the largest n from `least` to what the width may hold at which the text fits into
/// the width; make(least) where none does. `make` gives a text of at most n columns, as shortened()
/// does.
template <class Make>
std::string fitted(double width, std::string_view style, size_t least, const Make& make) {
  // No font's average character is narrower than a quarter of its size, and no size here is below
  // 11.
  auto most = std::max(least, static_cast<size_t>(std::max(0.0, width / 4)));
  for (; most > least; --most) {
    if (std::string text = make(most); text_width(text, style) <= width) return text;
  }
  return make(least);
}
/// shortened() to a width.
std::string fitted(std::string_view text, double width, std::string_view style);

}  // namespace penstock::report
