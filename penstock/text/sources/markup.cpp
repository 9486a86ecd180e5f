#include "penstock/text/sources/markup.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "penstock/text/plain_text.h"

namespace penstock::text {

namespace {

constexpr std::string_view kNameEnds = " \t\r\n/>";

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// The code point of "amp" or "#38"; 0: no entity that is known.
uint32_t entity(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, uint32_t>, 6> kNames = {
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xA0}}};
  for (const auto& [known, code] : kNames) {
    if (known == name) return code;
  }
  if (name.size() < 2 || name[0] != '#') return 0;
  const bool is_hex = name[1] == 'x' || name[1] == 'X';
  name.remove_prefix(is_hex ? 2 : 1);
  uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), code, is_hex ? 16 : 10);
  const bool is_whole = error == std::errc() && end == name.data() + name.size();
  const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  return is_whole && is_character ? code : 0;
}

}  // namespace

void MarkupScanner::skip_to(std::string_view end) {
  const size_t found = text_.find(end, at_);
  at_ = found == std::string_view::npos ? text_.size() : found + end.size();
}

/// Behind the '>' of the tag whose name begins at `begin`; npos: the tag does not end.
size_t MarkupScanner::end_of_tag(size_t begin) const {
  for (size_t i = begin; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '>') return i + 1;
    if ((c != '"' && c != '\'') || text_[i - 1] != '=') continue;
    i = text_.find(c, i + 1);
    if (i == std::string_view::npos) break;
  }
  return std::string_view::npos;
}

bool MarkupScanner::take_tag(MarkupPiece& piece) {
  const bool closes = text_.substr(at_).starts_with("</");
  const size_t name = at_ + (closes ? 2 : 1);
  if (name >= text_.size() || !begins_name(text_[name])) return false;
  const size_t end = end_of_tag(name);
  if (end == std::string_view::npos) {
    has_tags_ = false;
    return false;
  }
  std::string_view inside = text_.substr(name, end - 1 - name);
  const bool is_empty = !closes && inside.ends_with('/');
  if (is_empty) inside.remove_suffix(1);
  const size_t name_size = std::min(inside.find_first_of(kNameEnds), inside.size());
  piece = {.kind = closes     ? MarkupKind::Close
                   : is_empty ? MarkupKind::Empty
                              : MarkupKind::Open,
           .name = inside.substr(0, name_size),
           .content = inside.substr(name_size)};
  at_ = end;
  if (piece.kind == MarkupKind::Open) {
    if (piece.name == "script") skip_to("</script>");
    if (piece.name == "style") skip_to("</style>");
  }
  return true;
}

bool MarkupScanner::next(MarkupPiece& piece) {
  while (at_ < text_.size()) {
    const std::string_view rest = text_.substr(at_);
    if (has_tags_ && rest.starts_with("<!--")) {
      skip_to("-->");
      continue;
    }
    if (has_tags_ && (rest.starts_with("<!") || rest.starts_with("<?"))) {
      skip_to(">");
      continue;
    }
    if (has_tags_ && rest[0] == '<' && take_tag(piece)) return true;
    // At least one byte, which may be a '<' that begins no tag.
    const size_t end = has_tags_ ? std::min(rest.find('<', 1), rest.size()) : rest.size();
    piece = {.kind = MarkupKind::Text, .name = {}, .content = rest.substr(0, end)};
    at_ += end;
    return true;
  }
  return false;
}

std::string_view attribute(std::string_view attributes, std::string_view name) {
  for (size_t at = attributes.find(name); at != std::string_view::npos;
       at = attributes.find(name, at + 1)) {
    const bool begins = at == 0 || kNameEnds.find(attributes[at - 1]) != std::string_view::npos;
    const std::string_view rest = attributes.substr(at + name.size());
    if (!begins || rest.size() < 2 || rest[0] != '=' || (rest[1] != '"' && rest[1] != '\''))
      continue;
    const size_t end = rest.find(rest[1], 2);
    if (end != std::string_view::npos) return rest.substr(2, end - 2);
  }
  return {};
}

void append_unescaped(std::string_view text, std::string& out) {
  constexpr size_t kLongest = 10;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = std::min(text.find('&', at), text.size());
    out += text.substr(at, begin - at);
    if (begin == text.size()) return;
    const size_t end = text.substr(0, std::min(text.size(), begin + kLongest)).find(';', begin);
    const uint32_t code =
        end == std::string_view::npos ? 0 : entity(text.substr(begin + 1, end - begin - 1));
    if (code == 0) {
      out += '&';
      at = begin + 1;
    } else {
      append_utf8(code, out);
      at = end + 1;
    }
  }
}

}  // namespace penstock::text
