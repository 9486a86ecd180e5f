#include "penstock/report/text/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "penstock/util/text/printable.h"

namespace penstock::report {

namespace {

// Plain classes instead of CSS variables: viewers outside of browsers know no variables.
constexpr std::string_view kStyle =
    R"(
.pp{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.pp-bg{fill:#ffffff}.pp-card{fill:#f6f8fb;stroke:#b8c2cf}.pp-stack{fill:#e6ebf2;stroke:#b8c2cf}
.pp-hot{fill:#fff4ec;stroke:#c2410c;stroke-width:2}.pp-hot-stack{fill:#fde4d3;stroke:#c2410c}
.pp-title{font-size:20px;font-weight:600;fill:#111827})"
    R"(.pp-name{font-size:14px;font-weight:600;fill:#111827}
.pp-body{font-size:12px;fill:#111827}.pp-muted{font-size:12px;fill:#4b5563})"
    R"(.pp-small{font-size:11px;fill:#4b5563}
.pp-accent{font-size:12px;font-weight:600;fill:#b33a08}.pp-pill{fill:#b33a08})"
    R"(.pp-pill-text{font-size:11px;font-weight:600;fill:#ffffff}
.pp-line{stroke:#64748b;stroke-width:1.5;fill:none})"
    R"(.pp-line-hot{stroke:#c2410c;stroke-width:3;fill:none}.pp-rule{stroke:#d5dbe3}
.pp-head{fill:#64748b}.pp-head-hot{fill:#c2410c}
.pp-track{fill:#e3e8ef}.pp-forward{fill:#1d5fae}.pp-backward{fill:#86b0e2}.pp-sync{fill:#0c8f7d})"
    R"(.pp-step{fill:#98a2b3}.pp-memory{fill:#7c5cbf}
.pp-frame{fill:none;stroke:#94a3b8}.pp-even{fill:#d9e6f7;stroke:#94a3b8})"
    R"(.pp-odd{fill:#c3e6df;stroke:#94a3b8}
.pp-cell-hot{fill:#fbd9c3;stroke:#c2410c;stroke-width:2})"
    R"(.pp-idle{fill:none;stroke:#94a3b8;stroke-dasharray:3 3})"
    R"(.pp-cell-text{font-size:12px;fill:#111827}
@media (prefers-color-scheme:dark){
.pp-bg{fill:#10151c}.pp-card{fill:#1a222d;stroke:#475569}.pp-stack{fill:#242e3b;stroke:#475569}
.pp-hot{fill:#33201a;stroke:#ff8f52}.pp-hot-stack{fill:#4a2c20;stroke:#ff8f52}
.pp-title,.pp-name,.pp-body,.pp-cell-text{fill:#e8edf3}.pp-muted,.pp-small{fill:#a9b6c6}
.pp-accent{fill:#ffa06b}.pp-pill{fill:#ff8f52}.pp-pill-text{fill:#1b0d05}
.pp-line{stroke:#8b9bb0}.pp-line-hot{stroke:#ff8f52}.pp-rule{stroke:#2f3a48}.pp-head{fill:#8b9bb0})"
    R"(.pp-head-hot{fill:#ff8f52}
.pp-track{fill:#2b3644}.pp-forward{fill:#5ea3ee}.pp-backward{fill:#365f8f}.pp-sync{fill:#2db8a2})"
    R"(.pp-step{fill:#7d8a9b}.pp-memory{fill:#a58be0}
.pp-frame{stroke:#5b6b7e}.pp-even{fill:#20354f;stroke:#5b6b7e}.pp-odd{fill:#1c423c;stroke:#5b6b7e}
.pp-cell-hot{fill:#5a3322;stroke:#ff8f52}.pp-idle{stroke:#5b6b7e}
}
)";

std::string attribute(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string marker(std::string_view id, std::string_view style) {
  return fmt::format(
      R"(<marker id="{}" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" )"
      R"(refX="9" refY="5" orient="auto"><path class="{}" d="M0 1L9 5L0 9z"/></marker>)",
      id, style);
}

}  // namespace

double text_width(std::string_view text, std::string_view style) {
  // Of ' ' to '~' in hundredths of the font size, in DejaVu Sans: the widest of the fonts in the
  // style sheet.
  constexpr std::array<uint8_t, 95> kWidths = {
      32, 41, 46, 84, 64, 96, 78, 28, 40, 40, 50, 84, 32, 37,  32, 34, 64, 64, 64,
      64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 54, 100, 69, 69, 70, 77, 64,
      58, 78, 76, 30, 30, 66, 56, 87, 75, 79, 61, 79, 70, 64,  62, 74, 69, 99, 69,
      62, 69, 40, 34, 40, 84, 50, 50, 62, 64, 55, 64, 62, 36,  64, 64, 28, 28, 58,
      28, 98, 64, 62, 64, 64, 42, 53, 40, 64, 60, 82, 60, 60,  53, 64, 34, 64, 84};
  constexpr int kOther = 64;
  constexpr double kBold = 1.12;
  const double size = style == "title"                           ? 20
                      : style == "name"                          ? 14
                      : style == "small" || style == "pill-text" ? 11
                                                                 : 12;
  const bool bold =
      style == "title" || style == "name" || style == "accent" || style == "pill-text";
  int hundredths = 0;
  size_t ascii = 0;
  for (const char c : text) {
    if (c < ' ' || c > '~') continue;
    ++ascii;
    hundredths += kWidths[static_cast<size_t>(c - ' ')];
  }
  hundredths += kOther * static_cast<int>(display_width(text) - ascii);
  return 0.01 * hundredths * size * (bold ? kBold : 1.0);
}

std::string fitted(std::string_view text, double width, std::string_view style) {
  return fitted(width, style, 4, [&](size_t most) { return shortened(text, most); });
}

void Svg::rect(const Box& box, std::string_view style, double radius) {
  body_ += fmt::format(R"(<rect class="pp-{}" x="{}" y="{}" width="{}" height="{}")", style,
                       attribute(box.x), attribute(box.y), attribute(std::max(0.0, box.width)),
                       attribute(std::max(0.0, box.height)));
  if (radius > 0) body_ += fmt::format(R"( rx="{}")", attribute(radius));
  body_ += "/>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  body_ += fmt::format(R"(<line class="pp-{}" x1="{}" y1="{}" x2="{}" y2="{}"/>)", style,
                       attribute(x1), attribute(y1), attribute(x2), attribute(y2));
  body_ += '\n';
}

void Svg::arrow(std::string_view path, bool accent) {
  body_ += fmt::format("<path class=\"pp-line{0}\" d=\"{1}\" marker-end=\"url(#pp-arrow{0})\"/>\n",
                       accent ? "-hot" : "", path);
}

void Svg::text(double x, double y, std::string_view style, std::string_view content,
               Anchor anchor) {
  constexpr std::string_view kAnchors[] = {"", R"( text-anchor="middle")", R"( text-anchor="end")"};
  body_ += fmt::format("<text class=\"pp-{}\" x=\"{}\" y=\"{}\"{}>{}</text>\n", style, attribute(x),
                       attribute(y), kAnchors[static_cast<size_t>(anchor)], escaped(content));
}

double Svg::pill(double right, double y, std::string_view content) {
  const double width = 14 + text_width(content, "pill-text");
  rect({right - width, y - 13, width, 18}, "pill", 9);
  text(right - width / 2, y, "pill-text", content, Anchor::Middle);
  return right - width;
}

void Svg::open(std::string_view tooltip) {
  body_ += fmt::format("<g><title>{}</title>\n", escaped(tooltip));
}
void Svg::close() { body_ += "</g>\n"; }

std::string Svg::document(double width, double height, std::string_view label) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pp\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-label=\"{2}\">\n<title>{2}</title>\n<style>{3}</style>\n<defs>{4}{5}</defs>\n<rect "
      "class=\"pp-bg\" width=\"{0}\" "
      "height=\"{1}\"/>\n{6}</svg>\n",
      attribute(width), attribute(height), escaped(label), kStyle, marker("pp-arrow", "pp-head"),
      marker("pp-arrow-hot", "pp-head-hot"), body_);
}

}  // namespace penstock::report
