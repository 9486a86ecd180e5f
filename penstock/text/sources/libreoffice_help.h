// The help of LibreOffice, as Debian's packages libreoffice-help-LANGUAGE have it: a page of HTML
// for each topic, in every language under the same path, with the same paragraphs.
//
//   Corpus corpus = read_libreoffice_help(kLibreOfficeHelp, {"en-US", "de"});
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/text/corpus.h"

namespace penstock::text {

/// Where the packages put it.
inline constexpr std::string_view kLibreOfficeHelp = "/usr/share/libreoffice/help";

struct HelpParagraph {
  std::string id;  ///< empty: it has none
  std::string text;
  bool is_code = false;

  bool operator==(const HelpParagraph&) const = default;
};

/// The headings and paragraphs of a page's own text, in their order, single-spaced; empty ones too.
std::vector<HelpParagraph> help_paragraphs(std::string_view page);

/// The paragraphs of all pages in the first language, with those of the second where there is one.
/// Paragraphs are matched by their place where all ids of the page agree, otherwise by id: pages
/// that list functions have them in another order in each language. Programs' code is left out. A
/// page is a document. Throws ConfigError where a package is missing, ParseError where a page is no
/// UTF-8.
Corpus read_libreoffice_help(const std::filesystem::path& root,
                             const std::vector<std::string>& languages);

}  // namespace penstock::text
