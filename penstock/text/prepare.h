// From any source to a token folder: read, clean, split, make a vocabulary, encode, write.
//
//   DataRequest request{.task = Task::Translation, .source = SourceKind::LibreOfficeHelp,
//                       .languages = {"en-US", "de"}, .output = "help"};
//   const PreparedData data = prepare_data(request);
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/text/clean.h"
#include "penstock/text/corpus.h"
#include "penstock/text/sources/plain_files.h"
#include "penstock/text/token_folder.h"
#include "penstock/text/vocabulary.h"
#include "penstock/util/files/json.h"

namespace penstock::text {

enum class SourceKind : uint8_t { Files, LibreOfficeHelp, Gettext, Sword };

/// What a source has, and what it asks for.
struct SourceRow {
  std::string_view name;
  std::string_view help;
  bool has_text = true;        ///< not translations alone
  bool has_languages = false;  ///< to be chosen from
  bool has_modules = false;    ///< works to be chosen from
  int64_t min_words = 1;       ///< usual, of sentences of a translation
};

/// In the order of SourceKind.
inline constexpr std::array<SourceRow, 4> kSources = {
    {{.name = "files", .help = "your own files"},
     {.name = "libreoffice-help",
      .help = "Debian's libreoffice-help-LANGUAGE",
      .has_languages = true,
      .min_words = 3},
     {.name = "gettext",
      .help = "messages of the installed programs",
      .has_text = false,
      .has_languages = true,
      .min_words = 3},
     {.name = "sword", .help = "verses of Debian's sword-text-*", .has_modules = true}}};
constexpr const SourceRow& row_of(SourceKind kind) { return kSources[static_cast<size_t>(kind)]; }

/// What a user asks. Where nothing is given, the source decides.
struct DataRequest {
  Task task = Task::Text;
  SourceKind source = SourceKind::Files;
  /// Files or a folder of the user; of other sources at most one: the folder where they lie.
  std::vector<std::filesystem::path> paths = {};
  std::array<PairFiles, kParts> pairs = {};  ///< of a translation, instead of a folder
  std::vector<std::string> languages = {};   ///< one of a text, two of a translation
  std::vector<std::string> modules = {};     ///< works of SWORD, as many
  std::optional<int64_t> vocabulary = {};    ///< usual: 8000; of words: all, as far as they go
  std::optional<VocabularyKind> kind = {};   ///< usual: bpe, or word where the source has words
  std::optional<int64_t> min_words = {};
  std::optional<int64_t> max_words = {};  ///< usual: 60 of a translation
  SplitShares shares = {};
  std::filesystem::path output = {};
  std::string command = {};  ///< for the manifest
};

struct PreparedData {
  std::array<PartCounts, kParts> parts;
  Removed removed;
  Recurrence recurrence;
  int64_t vocabulary = 0;
  std::vector<std::string> notes;  ///< what a user should know, a sentence each
  Json manifest;
};

/// Writes the folder `output`. Blocks for the time that it takes: seconds for a million words.
/// Throws ConfigError, ParseError and RuntimeError as the parts do (sources/, clean.h,
/// vocabulary.h, token_folder.h). Nothing is written before the text has been read and divided.
PreparedData prepare_data(const DataRequest& request);

}  // namespace penstock::text
