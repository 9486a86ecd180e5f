// Texts as numbers: pieces of words (SentencePiece), or whole words.
//
//   const Vocabulary vocabulary = Vocabulary::train(lines, {.size = 8000});
//   std::vector<uint16_t> tokens;
//   vocabulary.encode("some text", tokens);
//   vocabulary.decode(tokens) == "some text";
//
// The same lines give the same vocabulary on every machine that has the same version of the
// library, whatever its number of processors. Encoding and decoding are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

/// How a vocabulary comes from a text: by joining frequent pairs of pieces, by the likeliest pieces
/// (unigram language model), or every word as it stands, with <unk> for rare ones.
enum class VocabularyKind : uint8_t { Bpe, Unigram, Word };

inline constexpr std::array<std::string_view, 3> kVocabularyKinds = {"bpe", "unigram", "word"};
constexpr std::string_view name_of(VocabularyKind kind) {
  return kVocabularyKinds[static_cast<size_t>(kind)];
}
/// Throws ConfigError for other names.
VocabularyKind parse_vocabulary_kind(std::string_view name);

/// Tokens that are no text.
inline constexpr uint16_t kPad = 0;
inline constexpr uint16_t kUnknown = 1;
inline constexpr uint16_t kBegin = 2;
inline constexpr uint16_t kEnd = 3;

/// Tokens are 16 bits.
inline constexpr int64_t kMaxVocabulary = 65535;

struct VocabularySpec {
  VocabularyKind kind = VocabularyKind::Bpe;
  int64_t size = 8000;  ///< at most; a small text gives fewer
};

/// Throws ConfigError for a size outside of [5, kMaxVocabulary].
void check_vocabulary_size(int64_t size);

class Vocabulary {
 public:
  /// Blocks while SentencePiece works, in up to four threads. Of more than two million lines it
  /// sees two million, evenly spread; rare characters (0.05 % of all) get no piece. Throws
  /// ConfigError: a size outside of [5, kMaxVocabulary], or smaller than the text's alphabet needs;
  /// no text.
  static Vocabulary train(std::span<const std::string_view> lines, const VocabularySpec& spec);
  /// A model file as train() made it. Throws ParseError where it is none, or has other numbers than
  /// those above.
  static Vocabulary parse(std::string model, VocabularyKind kind, std::string_view place);
  ~Vocabulary();
  Vocabulary(Vocabulary&&) noexcept;
  Vocabulary& operator=(Vocabulary&&) noexcept;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int64_t size() const;
  VocabularyKind kind() const { return kind_; }
  /// A line for each token (pieces.h).
  std::string pieces() const;
  /// The bytes of the model file, as SentencePiece reads and writes it.
  const std::string& model() const { return model_; }

  /// Appends the line's tokens, none at its begin and end. What no piece is for becomes kUnknown;
  /// so do words <unk> of a vocabulary of words. Lines of more than 4,000 bytes are taken in parts,
  /// between words where they have spaces.
  void encode(std::string_view line, std::vector<uint16_t>& tokens) const;
  /// The text of tokens; pad, begin and end are left out. Throws ConfigError for a token that is
  /// not below size().
  std::string decode(std::span<const uint16_t> tokens) const;

 private:
  struct Pieces;
  Vocabulary(std::string model, VocabularyKind kind, std::unique_ptr<Pieces> pieces);
  void encode_part(std::string_view part, std::vector<uint16_t>& tokens) const;

  std::string model_;
  VocabularyKind kind_;
  std::unique_ptr<Pieces> pieces_;
};

}  // namespace penstock::text
