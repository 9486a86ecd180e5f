// WordNet's synonyms, out of the files that Debian's wordnet-base installs: index.POS and POS.exc
// of nouns, verbs, adjectives and adverbs (WordNet's manual, wndb(5WN) and morphy(7WN)).
//
//   const WordNet wordnet(kWordNetFolder);
//   wordnet.are_synonyms("cars", "automobile") == true;
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "penstock/util/files/file_bytes.h"

namespace penstock::text {

inline constexpr std::string_view kWordNetFolder = "/usr/share/wordnet";

/// Immutable; thread-safe.
class WordNet {
 public:
  /// Throws ConfigError: a file is missing (with the package to install) or unreadable.
  explicit WordNet(const std::filesystem::path& folder);

  /// The sets of synonyms that a word in lower case, or a base form of it, is in; ascending, none
  /// twice. Base forms are those of morphy(7WN): the file of exceptions, otherwise endings that are
  /// replaced once. Throws ParseError: a line of the index is damaged. O(log of the files' size).
  std::vector<int64_t> synsets(std::string_view word) const;
  bool are_synonyms(std::string_view one, std::string_view other) const;

 private:
  struct PartOfSpeech {
    std::unique_ptr<const FileBytes> index;
    std::unique_ptr<const FileBytes> exceptions;
  };
  void add_synsets(size_t pos, std::string_view form, std::vector<int64_t>& found) const;

  std::filesystem::path folder_;
  std::array<PartOfSpeech, 4> parts_;
};

/// Whether two ascending lists share a number.
bool have_common(const std::vector<int64_t>& one, const std::vector<int64_t>& other);

}  // namespace penstock::text
