// The verses of a testament as SWORD's driver zText keeps them: an index of compressed blocks, an
// index of verses within the unpacked blocks, and the blocks.
//
//   .?zs  12 bytes a block: where it begins in .?zz, its bytes there, its bytes unpacked
//   .?zv  10 bytes a verse: its block, where it begins there, its bytes (16 bits)
//   .?zz  the blocks, by zlib
//
// All numbers have their lowest byte first. Entry i of two works with the same versification is the
// same verse; books and chapters have entries of their own, before their first verse.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

struct VerseEntry {
  uint32_t block = 0;
  std::string text;  ///< with its markup
};

/// The contents of the three files.
struct VerseFiles {
  std::string_view blocks;
  std::string_view verses;
  std::string_view packed;
};

/// All entries, those without text, too. Throws ParseError: numbers that lead out of a file or a
/// block, a block that cannot be unpacked, more than a million entries or 512 MiB of text. Memory
/// in proportion to the unpacked text.
std::vector<VerseEntry> parse_verses(const VerseFiles& files, std::string_view place);

}  // namespace penstock::text
