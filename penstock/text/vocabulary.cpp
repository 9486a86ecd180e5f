#include "penstock/text/vocabulary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::text {

namespace {

/// A part of a line that SentencePiece gets at once: it leaves out longer ones when it learns, and
/// takes time in proportion to size times logarithm when it encodes.
constexpr size_t kPartBytes = 4000;
constexpr size_t kMostLines = 2'000'000;
constexpr std::string_view kUnknownWord = "<unk>";
/// SentencePiece's mark of a word's begin, U+2581.
constexpr std::string_view kWordMark = "\xE2\x96\x81";

/// Parts of at most kPartBytes, between words if there are any, never within a character.
template <class Take>
void for_each_part(std::string_view line, Take take) {
  while (line.size() > kPartBytes) {
    size_t end = line.rfind(' ', kPartBytes);
    if (end == std::string_view::npos || end == 0) {
      end = kPartBytes;
      while (end > 1 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
    }
    take(line.substr(0, end));
    line.remove_prefix(end);
    if (line.front() == ' ') line.remove_prefix(1);
  }
  if (!line.empty()) take(line);
}

template <class Take>
void for_each_word(std::string_view line, Take take) {
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) take(line.substr(at, end - at));
    at = end + 1;
  }
}

std::string without_unknown(std::string_view line) {
  std::string kept;
  for_each_word(line, [&](std::string_view word) {
    if (word == kUnknownWord) return;
    if (!kept.empty()) kept += ' ';
    kept += word;
  });
  return kept;
}

/// Hands the lines to SentencePiece, one part after the other.
class Parts final : public sentencepiece::SentenceIterator {
 public:
  Parts(std::span<const std::string_view> lines, VocabularyKind kind)
      : lines_(lines), count_(std::min(lines.size(), kMostLines)), kind_(kind) {
    Next();
  }
  bool done() const override { return is_done_; }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    while (next_part_ >= parts_.size()) {
      if (next_line_ >= count_) {
        is_done_ = true;
        return;
      }
      parts_.clear();
      next_part_ = 0;
      // Evenly spread where there are too many.
      const auto line =
          static_cast<size_t>(static_cast<double>(next_line_++) *
                              static_cast<double>(lines_.size()) / static_cast<double>(count_));
      for_each_part(lines_[line], [&](std::string_view part) { parts_.push_back(part); });
    }
    const std::string_view part = parts_[next_part_++];
    value_ = kind_ == VocabularyKind::Word ? without_unknown(part) : std::string(part);
  }

 private:
  std::span<const std::string_view> lines_;
  size_t count_;
  VocabularyKind kind_;
  size_t next_line_ = 0;
  std::vector<std::string_view> parts_;
  size_t next_part_ = 0;
  std::string value_;
  bool is_done_ = false;
};

std::unordered_map<std::string, std::string> trainer_options(const VocabularySpec& spec) {
  const bool has_words = spec.kind == VocabularyKind::Word;
  return {{"model_type", std::string(name_of(spec.kind))},
          {"vocab_size", std::to_string(spec.size)},
          {"pad_id", std::to_string(kPad)},
          {"unk_id", std::to_string(kUnknown)},
          {"bos_id", std::to_string(kBegin)},
          {"eos_id", std::to_string(kEnd)},
          // A small text has fewer pieces.
          {"hard_vocab_limit", "false"},
          {"character_coverage", has_words ? "1.0" : "0.9995"},
          // Words stand as they are; pieces are made of the usual forms of characters (NFKC).
          {"normalization_rule_name", has_words ? "identity" : "nmt_nfkc"},
          // The unigram model depends on it.
          {"num_threads", "4"},
          {"minloglevel", "3"}};
}

std::string reason_of(const sentencepiece::util::Status& status) {
  // "Internal: src/file.cc(12) [condition] words": the words say it.
  const std::string_view text = status.error_message();
  const size_t words = text.find("] ");
  return std::string(words == std::string_view::npos ? text : text.substr(words + 2));
}

}  // namespace

struct Vocabulary::Pieces {
  sentencepiece::SentencePieceProcessor processor;
};

VocabularyKind parse_vocabulary_kind(std::string_view name) {
  for (size_t k = 0; k < kVocabularyKinds.size(); ++k) {
    if (kVocabularyKinds[k] == name) return static_cast<VocabularyKind>(k);
  }
  throw ConfigError(
      fmt::format("expected one of {}, found '{}'", fmt::join(kVocabularyKinds, ", "), name));
}

void check_vocabulary_size(int64_t size) {
  if (size < 5 || size > kMaxVocabulary)
    throw ConfigError(
        fmt::format("a vocabulary has from 5 to {} tokens, since tokens are 16 bits; "
                    "found {}",
                    kMaxVocabulary, size));
}

Vocabulary::Vocabulary(std::string model, VocabularyKind kind, std::unique_ptr<Pieces> pieces)
    : model_(std::move(model)), kind_(kind), pieces_(std::move(pieces)) {}
Vocabulary::~Vocabulary() = default;
Vocabulary::Vocabulary(Vocabulary&&) noexcept = default;
Vocabulary& Vocabulary::operator=(Vocabulary&&) noexcept = default;

Vocabulary Vocabulary::train(std::span<const std::string_view> lines, const VocabularySpec& spec) {
  check_vocabulary_size(spec.size);
  if (std::all_of(lines.begin(), lines.end(), [](std::string_view line) { return line.empty(); }))
    throw ConfigError("no vocabulary can be made: the text is empty");
  Parts parts(lines, spec.kind);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(trainer_options(spec), &parts, &model);
  if (!status.ok())
    throw ConfigError(fmt::format("no vocabulary of {} tokens can be made from this text: {}",
                                  spec.size, reason_of(status)));
  return parse(std::move(model), spec.kind, "vocabulary");
}

Vocabulary Vocabulary::parse(std::string model, VocabularyKind kind, std::string_view place) {
  auto pieces = std::make_unique<Pieces>();
  sentencepiece::SentencePieceProcessor& processor = pieces->processor;
  if (!processor.LoadFromSerializedProto(model).ok() || processor.GetPieceSize() < 1)
    throw ParseError(place, 0, "expected a model of SentencePiece, found something else");
  if (processor.pad_id() != kPad || processor.unk_id() != kUnknown ||
      processor.bos_id() != kBegin || processor.eos_id() != kEnd ||
      processor.GetPieceSize() > kMaxVocabulary) {
    throw ParseError(
        place, 0,
        fmt::format("expected a model with at most {} pieces, and pad, unknown, begin, "
                    "end as 0, 1, 2, 3; found {} pieces, and {}, {}, {}, {}",
                    kMaxVocabulary, processor.GetPieceSize(), processor.pad_id(),
                    processor.unk_id(), processor.bos_id(), processor.eos_id()));
  }
  return Vocabulary(std::move(model), kind, std::move(pieces));
}

int64_t Vocabulary::size() const { return pieces_->processor.GetPieceSize(); }

void Vocabulary::encode_part(std::string_view part, std::vector<uint16_t>& tokens) const {
  const sentencepiece::SentencePieceProcessor& processor = pieces_->processor;
  if (kind_ == VocabularyKind::Word) {
    // SentencePiece itself makes one token of several unknown words in a row.
    std::string piece(kWordMark);
    for_each_word(part, [&](std::string_view word) {
      piece.resize(kWordMark.size());
      piece += word;
      tokens.push_back(static_cast<uint16_t>(processor.PieceToId(piece)));
    });
    return;
  }
  std::vector<int> ids;
  if (const auto status = processor.Encode(part, &ids); !status.ok())
    throw RuntimeError(fmt::format("SentencePiece could not encode a line: {}", reason_of(status)));
  for (const int id : ids) tokens.push_back(static_cast<uint16_t>(id));
}

void Vocabulary::encode(std::string_view line, std::vector<uint16_t>& tokens) const {
  for_each_part(line, [&](std::string_view part) { encode_part(part, tokens); });
}

std::string Vocabulary::pieces() const {
  std::string lines;
  for (int id = 0; id < static_cast<int>(size()); ++id)
    lines += pieces_->processor.IdToPiece(id) + '\n';
  return lines;
}

std::string Vocabulary::decode(std::span<const uint16_t> tokens) const {
  const sentencepiece::SentencePieceProcessor& processor = pieces_->processor;
  std::vector<int> ids;
  std::string words;
  for (const uint16_t token : tokens) {
    if (token >= size())
      throw ConfigError(
          fmt::format("token {} is not of this vocabulary, which has {}", token, size()));
    if (token == kPad || token == kBegin || token == kEnd) continue;
    ids.push_back(token);
    if (kind_ != VocabularyKind::Word) continue;
    if (!words.empty()) words += ' ';
    std::string_view word = token == kUnknown ? kUnknownWord : processor.IdToPiece(token);
    if (word.starts_with(kWordMark)) word.remove_prefix(kWordMark.size());
    words += word;
  }
  if (kind_ == VocabularyKind::Word) return words;
  std::string text;
  if (const auto status = processor.Decode(ids, &text); !status.ok())
    throw RuntimeError(fmt::format("SentencePiece could not decode: {}", reason_of(status)));
  return text;
}

}  // namespace penstock::text
