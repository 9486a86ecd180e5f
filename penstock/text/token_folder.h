// The folder that texts become for the trainer: tokens of each part, the vocabulary, and a manifest
// that says where they came from. docs/formats.md has it file by file.
//
//   const auto counts = write_tokens(corpus, Task::Translation, vocabulary, "wmt");
//   write_manifest(manifest, "wmt");   // last: a folder without it is not finished
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/text/corpus.h"
#include "penstock/text/vocabulary.h"
#include "penstock/util/files/json.h"

namespace penstock::text {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kVocabularyName = "vocabulary.model";
inline constexpr std::string_view kPiecesName = "vocabulary.txt";

/// Of one side of a part. Tokens of a text include an end for each sentence.
struct SideCounts {
  int64_t words = 0;
  int64_t tokens = 0;
  int64_t unknown = 0;  ///< tokens that stand for what has no piece
  int64_t longest = 0;  ///< tokens of the longest sentence, without its end

  bool operator==(const SideCounts&) const = default;
};

struct PartCounts {
  int64_t sentences = 0;
  SideCounts source;
  SideCounts target;  ///< of a translation

  bool operator==(const PartCounts&) const = default;
};

/// Throws ConfigError: a file has this name, or a folder that holds files but no manifest of a
/// token folder. Changes nothing.
void check_token_folder(const std::filesystem::path& folder);

/// Makes the folder where it is missing, and removes the manifest of an older one. Throws
/// ConfigError as check_token_folder, or where it cannot be made.
void open_token_folder(const std::filesystem::path& folder);

/// Writes vocabulary.model and the files of every part that has sentences, and removes those of a
/// part that has none. By Part. Throws ConfigError or RuntimeError where a file cannot be written.
std::array<PartCounts, kParts> write_tokens(const Corpus& corpus, Task task,
                                            const Vocabulary& vocabulary,
                                            const std::filesystem::path& folder);

/// vocabulary.model and vocabulary.txt. Throws as write_tokens.
void write_vocabulary(const Vocabulary& vocabulary, const std::filesystem::path& folder);

/// By number of a line, from 0 on.
using LineAt = std::function<const std::string&(size_t)>;
/// `count` sentences as NAME.bin and NAME.idx and, where `has_lines`, NAME.txt; removes them where
/// there is none. Throws as write_tokens.
SideCounts write_lines(const std::filesystem::path& folder, const std::string& name, size_t count,
                       const LineAt& line, bool has_lines, const Vocabulary& vocabulary);

/// Parts of a manifest.
Json counts_json(const SideCounts& side);
Json vocabulary_json(const Vocabulary& vocabulary);
Json sources_json(const std::vector<Origin>& origins);

/// Throws as write_tokens.
void write_manifest(const Json& manifest, const std::filesystem::path& folder);

}  // namespace penstock::text
