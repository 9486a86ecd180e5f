// The kinds of data that a name leads to: one row each, without tensors, for programs without
// libtorch. load_data.h reads them. docs/extending.md says how to add one.
//
//   find_data_format("mine.npz")->name == "FILE.npz";
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace penstock::train {

/// How a name says that the data is of this kind.
enum class DataNamed : uint8_t { ByItsName, ByItsEnding, AsFolder, AsTokenFolder };

/// A folder with these files holds tokens (token_folder.h).
inline constexpr std::string_view kTokenManifest = "manifest.json";
inline constexpr std::string_view kTokenVocabulary = "vocabulary.model";

struct DataFormatRow {
  std::string_view name;  ///< for people: "idx", "FILE.npz"
  DataNamed named = DataNamed::ByItsName;
  std::string_view ending;  ///< of the file's name
  std::string_view help;    ///< what it is; docs/training.md has the same

  /// Whether DataSpec::name is of this kind. A folder has to be there.
  bool is(const std::string& data) const {
    std::error_code ignored;
    if (named == DataNamed::ByItsName) return data == name;
    const bool is_folder = std::filesystem::is_directory(data, ignored);
    if (named == DataNamed::ByItsEnding) return !is_folder && data.ends_with(ending);
    const std::filesystem::path folder(data);
    const bool has_tokens = is_folder &&
                            std::filesystem::exists(folder / kTokenManifest, ignored) &&
                            std::filesystem::exists(folder / kTokenVocabulary, ignored);
    return is_folder && has_tokens == (named == DataNamed::AsTokenFolder);
  }
  /// The user's own data, from which a part may be taken for the test.
  constexpr bool is_own() const { return named != DataNamed::ByItsName; }
};

inline constexpr std::array<DataFormatRow, 12> kDataFormats = {
    {{.name = "fashion-mnist", .ending = "", .help = "Debian's dataset-fashion-mnist"},
     {.name = "cifar10", .ending = "", .help = "its binary version, unpacked in the data folder"},
     {.name = "cifar100",
      .ending = "",
      .help = "its binary version with the fine labels, unpacked in the data folder"},
     {.name = "idx",
      .ending = "",
      .help = "four IDX files in the data folder, under MNIST's names, gzip or not"},
     {.name = "synthetic",
      .ending = "",
      .help = "made from the seed, for any model: patterns that can be told apart for numbers, "
              "tokens that follow each other by a rule"},
     {.name = "FILE.npz",
      .named = DataNamed::ByItsEnding,
      .ending = ".npz",
      .help = "arrays by name (numpy.savez), the samples along the first dimension"},
     {.name = "FILE.npy",
      .named = DataNamed::ByItsEnding,
      .ending = ".npy",
      .help = "one row of tokens: whole numbers"},
     {.name = "FILE.bin",
      .named = DataNamed::ByItsEnding,
      .ending = ".bin",
      .help = "one row of tokens as uint16, as nanoGPT and llm.c write them"},
     {.name = "FILE.txt",
      .named = DataNamed::ByItsEnding,
      .ending = ".txt",
      .help = "a text, each of its bytes a token, for models of few tokens"},
     {.name = "FILE.csv",
      .named = DataNamed::ByItsEnding,
      .ending = ".csv",
      .help = "images by their file's name, with a label each"},
     {.name = "TOKENS",
      .named = DataNamed::AsTokenFolder,
      .ending = "",
      .help = "a text, pairs of sentences or captioned clips as tokens, in a folder that `penstock "
              "data` has made"},
     {.name = "FOLDER",
      .named = DataNamed::AsFolder,
      .ending = "",
      .help = "images, in a folder per class"}}};

/// Null: no kind has such a name.
inline const DataFormatRow* find_data_format(const std::string& data) {
  for (const DataFormatRow& row : kDataFormats) {
    if (row.is(data)) return &row;
  }
  return nullptr;
}

/// "fashion-mnist, cifar10, ..., FOLDER": for messages.
inline std::string data_format_names() {
  std::string names;
  for (const DataFormatRow& row : kDataFormats)
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

/// A kind for each line of a help text: "idx: four IDX files ...".
inline std::string data_format_help() {
  std::string help;
  for (const DataFormatRow& row : kDataFormats)
    help += (help.empty() ? "" : "; ") + std::string(row.name) + ": " + std::string(row.help);
  return help;
}

}  // namespace penstock::train
