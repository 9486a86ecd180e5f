// Verses of works that Debian's packages sword-text-* install, aligned by their place in the canon.
//
//   Corpus corpus = read_sword(kSwordFolder, {"KJV", "spaRV"});
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/text/corpus.h"

namespace penstock::text {

/// Where the packages put them.
inline constexpr std::string_view kSwordFolder = "/usr/share/sword";

/// What the configuration of a work says.
struct SwordModule {
  std::string name;                           ///< "engKJV2006eb"
  std::map<std::string, std::string> values;  ///< "Abbreviation": "KJV"; of several, the last

  std::string value(const std::string& key) const;
};

/// Throws ParseError where no [name] comes first.
SwordModule parse_sword_module(std::string_view text, std::string_view place);

/// The text of a verse without markup, notes and titles, single-spaced.
std::string plain_verse(std::string_view marked);

/// The verses of the first work, with those of the second where one is named. A name is the work's
/// own, its abbreviation, or the beginning of one of both, in any case. A chapter is a document.
/// Throws ConfigError: no such work, or one that is stored in another way than zText by zlib in
/// UTF-8, is locked, or counts verses in another way than the first; ParseError where it is
/// damaged.
Corpus read_sword(const std::filesystem::path& root, const std::vector<std::string>& names);

}  // namespace penstock::text
