// Sentences out of any source, on their way to a token folder: read, cleaned, split, encoded.
//
//   Corpus corpus = read_libreoffice_help(root, "en-US", "de");
//   const Removed removed = clean(corpus, rules);
//   split(corpus, shares, seed);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

/// What models shall learn: to go on with a text, or to translate sentences.
enum class Task : uint8_t { Text, Translation };

enum class Part : uint8_t { Train, Valid, Test };
inline constexpr size_t kParts = 3;
inline constexpr std::array<std::string_view, kParts> kPartNames = {"train", "valid", "test"};
constexpr size_t index_of(Part part) { return static_cast<size_t>(part); }

/// A sentence and its translation, both single-spaced. Of a text the translation is empty.
struct Sentence {
  std::string source;
  std::string target;
  uint32_t document = 0;  ///< a page, a catalogue, a chapter: what is never split

  bool operator==(const Sentence&) const = default;
};

/// Where sentences came from, for the manifest.
struct Origin {
  std::string name;
  std::string version;  ///< empty: not known
  std::string licence;
  std::vector<std::string> files;

  bool operator==(const Origin&) const = default;
};

struct Corpus {
  /// By Part; what is not split yet is all in Train.
  std::array<std::vector<Sentence>, kParts> parts;
  /// The parts that the source itself has: valid and test stay as they are then.
  std::array<bool, kParts> is_given = {true, false, false};
  /// A known data set whose results are compared: train stays as it is, too.
  bool is_fixed = false;
  /// Its tokens are words with spaces between them, rare ones written as <unk>.
  bool has_words = false;
  std::vector<Origin> origins;
  std::vector<std::string> notes;  ///< what a user should know, a sentence each

  std::vector<Sentence>& at(Part part) { return parts[index_of(part)]; }
  const std::vector<Sentence>& at(Part part) const { return parts[index_of(part)]; }
};

}  // namespace penstock::text
