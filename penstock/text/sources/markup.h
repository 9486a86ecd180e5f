// The pieces of a text with markup: HTML as programs write it, or fragments of XML that no parser
// of documents takes, as verses have them. It never fails: what is no markup is text.
//
//   MarkupScanner scanner("<p class=\"x\">a &amp; b</p>");
//   for (MarkupPiece piece; scanner.next(piece);) use(piece);   // Open p, Text, Close p
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::text {

enum class MarkupKind : uint8_t { Text, Open, Close, Empty };

/// Its views end with the text that was scanned.
struct MarkupPiece {
  MarkupKind kind = MarkupKind::Text;
  std::string_view name;     ///< of a tag
  std::string_view content;  ///< the text, or the attributes of a tag
};

/// Comments, declarations, scripts and styles are left out. O(size) for all pieces together.
class MarkupScanner {
 public:
  explicit MarkupScanner(std::string_view text) : text_(text) {}
  /// False at the end.
  bool next(MarkupPiece& piece);

 private:
  bool take_tag(MarkupPiece& piece);
  size_t end_of_tag(size_t begin) const;
  void skip_to(std::string_view end);

  std::string_view text_;
  size_t at_ = 0;
  bool has_tags_ = true;  ///< false once a tag has no end: the rest is text
};

/// The value of an attribute; empty where there is none.
std::string_view attribute(std::string_view attributes, std::string_view name);

/// Appends the text with its entities replaced: &amp; &lt; &gt; &quot; &apos; &nbsp; and numbers.
/// Others stay as they are.
void append_unescaped(std::string_view text, std::string& out);

}  // namespace penstock::text
