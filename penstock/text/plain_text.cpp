#include "penstock/text/plain_text.h"

#include <algorithm>

namespace penstock::text {

namespace {

constexpr uint32_t kNoCharacter = 0xDC00;
constexpr uint32_t kReplacement = 0xFFFD;

/// How many bytes follow a first byte, and the least code point of that length.
struct Lead {
  int more = -1;  ///< -1: no first byte
  uint32_t bits = 0;
  uint32_t least = 0;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {0, byte, 0};
  if (byte >= 0xC2 && byte < 0xE0) return {1, byte & 0x1Fu, 0x80};
  if (byte >= 0xE0 && byte < 0xF0) return {2, byte & 0x0Fu, 0x800};
  if (byte >= 0xF0 && byte < 0xF5) return {3, byte & 0x07u, 0x10000};
  return {};
}

bool is_within(uint32_t code, uint32_t first, uint32_t last) {
  return code >= first && code <= last;
}

uint32_t lower(uint32_t code) {
  if (code < 0x80) return is_within(code, 'A', 'Z') ? code + 32 : code;
  if (is_within(code, 0xC0, 0xDE)) return code == 0xD7 ? code : code + 32;
  // Pairs of a capital and its small letter: even first, or odd first.
  if (is_within(code, 0x100, 0x137) || is_within(code, 0x14A, 0x177) ||
      is_within(code, 0x460, 0x481) || is_within(code, 0x48A, 0x4BF) ||
      is_within(code, 0x4D0, 0x52F) || is_within(code, 0x1E00, 0x1E95) ||
      is_within(code, 0x1EA0, 0x1EFF)) {
    if (code == 0x130) return 'i';  // dotted capital I
    return code | 1u;
  }
  if (is_within(code, 0x139, 0x148) || is_within(code, 0x179, 0x17E))
    return code % 2 == 1 ? code + 1 : code;
  if (code == 0x178) return 0xFF;
  if (code == 0x1E9E) return 0xDF;
  if (is_within(code, 0x391, 0x3A9) && code != 0x3A2) return code + 32;
  if (is_within(code, 0x400, 0x40F)) return code + 80;
  if (is_within(code, 0x410, 0x42F)) return code + 32;
  if (is_within(code, 0x531, 0x556)) return code + 48;
  return code;
}

bool is_control(uint32_t code) { return code < 0x20 || is_within(code, 0x7F, 0x9F); }

/// Digits and punctuation of ASCII and Latin-1, quotation marks, dashes, arrows, signs.
bool is_letter(uint32_t code) {
  if (code < 0x80) return is_within(code, 'a', 'z') || is_within(code, 'A', 'Z');
  return !is_within(code, 0x80, 0xBF) && code != 0xD7 && code != 0xF7 &&
         !is_within(code, 0x2000, 0x2BFF) && !is_within(code, 0x3000, 0x3004);
}

}  // namespace

uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const Lead lead = lead_of(first);
  if (lead.more < 0 || at + static_cast<size_t>(lead.more) >= text.size()) {
    ++at;
    return lead.more == 0 ? lead.bits : kNoCharacter + first;
  }
  uint32_t code = lead.bits;
  for (int i = 1; i <= lead.more; ++i) {
    const unsigned char next = byte(at + static_cast<size_t>(i));
    if ((next & 0xC0) != 0x80) {
      ++at;
      return kNoCharacter + first;
    }
    code = code << 6 | (next & 0x3Fu);
  }
  if (code < lead.least || code > 0x10FFFF || is_within(code, 0xD800, 0xDFFF)) {
    ++at;
    return kNoCharacter + first;
  }
  at += static_cast<size_t>(lead.more) + 1;
  return code;
}

void append_utf8(uint32_t code, std::string& out) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
    return put(0x80 | (code & 0x3F));
  }
  if (code < 0x10000) {
    put(0xE0 | code >> 12);
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
  }
  put(0x80 | (code >> 6 & 0x3F));
  put(0x80 | (code & 0x3F));
}

std::optional<size_t> first_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
    } else if (is_within(next_code_point(text, at), 0xD800, 0xDFFF)) {
      return begin;
    }
  }
  return std::nullopt;
}

bool is_white_space(uint32_t code) {
  return is_within(code, 0x09, 0x0D) || is_within(code, 0x1C, 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || is_within(code, 0x2000, 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string single_spaced(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool needs_space = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t code = next_code_point(text, at);
    if (is_white_space(code) || is_control(code)) {
      needs_space = !result.empty();
      continue;
    }
    if (needs_space) result += ' ';
    needs_space = false;
    if (is_within(code, 0xD800, 0xDFFF)) {
      append_utf8(kReplacement, result);
    } else {
      result += text.substr(begin, at - begin);
    }
  }
  return result;
}

int64_t count_words(std::string_view spaced) {
  return spaced.empty() ? 0 : 1 + std::count(spaced.begin(), spaced.end(), ' ');
}

std::string folded(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t code = next_code_point(text, at);
    const uint32_t small = lower(code);
    if (small == code) {
      result += text.substr(begin, at - begin);
    } else {
      append_utf8(small, result);
    }
  }
  return result;
}

std::string letters_of(std::string_view text) {
  std::string result;
  bool needs_space = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t code = next_code_point(text, at);
    if (!is_letter(code)) {
      needs_space = !result.empty();
      continue;
    }
    if (needs_space) result += ' ';
    needs_space = false;
    append_utf8(lower(code), result);
  }
  return result;
}

}  // namespace penstock::text
