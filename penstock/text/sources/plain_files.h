// The user's own files: a text, a known data set of texts, or sentences with their translations.
//
//   Corpus corpus = read_texts({"ptb/"});
//   Corpus pairs = read_pairs(pair_files_in("wmt/", "en", "de"));
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/text/corpus.h"

namespace penstock::text {

/// A text out of files, or out of one folder. A folder in the form of a known data set gives its
/// parts as they are; of another folder all .txt files are taken. Some lines that follow each other
/// are a document. Throws ConfigError: missing, no such file in the folder; ParseError: no UTF-8.
Corpus read_texts(const std::vector<std::filesystem::path>& paths);

/// Line i of `target` is the translation of line i of `source`. Both empty: not given.
struct PairFiles {
  std::filesystem::path source;
  std::filesystem::path target;

  bool operator==(const PairFiles&) const = default;
};

/// By Part. Throws ConfigError: no files to train on, only one file of a part, files of different
/// numbers of lines; ParseError: no UTF-8.
Corpus read_pairs(const std::array<PairFiles, kParts>& files);

/// The files of a folder as WMT's are usually named, ending in .LANGUAGE: train*; valid* or dev*;
/// test*. The last of newstest* is the test where there is no other, and the one before it valid.
/// Throws ConfigError: nothing to train on, or several candidates for a part.
std::array<PairFiles, kParts> pair_files_in(const std::filesystem::path& folder,
                                            const std::string& source, const std::string& target);

}  // namespace penstock::text
