// Messages of programs with their translations: gettext's .mo files, as every program installs them
// into /usr/share/locale/LANGUAGE/LC_MESSAGES.
//
//   Corpus corpus = read_catalogues("/usr/share/locale/de/LC_MESSAGES");
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/text/corpus.h"

namespace penstock::text {

/// Where programs install theirs.
inline constexpr std::string_view kLocaleFolder = "/usr/share/locale";

struct Catalogue {
  std::string project;  ///< "bash 5.2": as its header says; may be empty
  std::string charset;  ///< as its header says; may be empty
  /// Message and translation as they stand there, of plurals the first form; no contexts.
  std::vector<std::pair<std::string_view, std::string_view>> messages;
};

/// Its views are parts of `bytes`. Throws ParseError: no such file, a string outside of it, strings
/// that overlap. O(size). Source: GNU gettext's manual, "The Format of GNU MO Files".
Catalogue parse_catalogue(std::string_view bytes, std::string_view place);

/// The messages of all .mo files that lie directly in the folder; a file is a document. Catalogues
/// that are not in UTF-8 are left out, with a note. Throws ConfigError where there is none,
/// ParseError where one is damaged.
Corpus read_catalogues(const std::filesystem::path& folder);

/// FOLDER/LANGUAGE/LC_MESSAGES where it is there, otherwise FOLDER. Throws ConfigError naming both.
std::filesystem::path catalogue_folder(const std::filesystem::path& folder,
                                       const std::string& language);

}  // namespace penstock::text
