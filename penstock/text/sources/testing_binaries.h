// For tests: small files in the forms of gettext and SWORD.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace penstock::text {

/// The lowest byte first, or the highest (`swapped`).
inline std::string number_bytes(uint32_t value, int size = 4, bool swapped = false) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    const int place = swapped ? size - 1 - i : i;
    bytes += static_cast<char>(value >> (8 * place) & 0xFF);
  }
  return bytes;
}

/// A .mo file of these messages and their translations.
inline std::string catalogue_bytes(const std::vector<std::pair<std::string, std::string>>& messages,
                                   bool swapped = false) {
  const auto number = [&](size_t value) {
    return number_bytes(static_cast<uint32_t>(value), 4, swapped);
  };
  const size_t count = messages.size();
  const size_t tables = 28;
  size_t next = tables + 16 * count;
  std::string first, second, strings;
  for (const auto side : {0, 1}) {
    for (const auto& [message, translation] : messages) {
      const std::string& text = side == 0 ? message : translation;
      (side == 0 ? first : second) += number(text.size()) + number(next);
      strings += text + '\0';
      next += text.size() + 1;
    }
  }
  return number(0x950412DE) + number(0) + number(count) + number(tables) +
         number(tables + 8 * count) + number(0) + number(0) + first + second + strings;
}

struct VerseBytes {
  std::string blocks;
  std::string verses;
  std::string packed;
};

/// A testament: its verses by block.
inline VerseBytes verse_bytes(const std::vector<std::vector<std::string>>& blocks) {
  VerseBytes files;
  for (size_t b = 0; b < blocks.size(); ++b) {
    std::string text;
    for (const std::string& verse : blocks[b]) {
      files.verses += number_bytes(static_cast<uint32_t>(b)) +
                      number_bytes(static_cast<uint32_t>(text.size())) +
                      number_bytes(static_cast<uint32_t>(verse.size()), 2);
      text += verse;
    }
    std::string packed(compressBound(text.size()), '\0');
    uLongf size = packed.size();
    compress(reinterpret_cast<Bytef*>(packed.data()), &size,
             reinterpret_cast<const Bytef*>(text.data()), text.size());
    packed.resize(size);
    files.blocks += number_bytes(static_cast<uint32_t>(files.packed.size())) +
                    number_bytes(static_cast<uint32_t>(packed.size())) +
                    number_bytes(static_cast<uint32_t>(text.size()));
    files.packed += packed;
  }
  return files;
}

}  // namespace penstock::text
