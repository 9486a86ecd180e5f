// Which word of a sentence stands for which of another one.
//
//   WordAlignment alignment(hypothesis.size(), reference.size());
//   alignment.add_stage(candidates);   // equal words; then equal stems; then synonyms
//   alignment.num_chunks();
//
// Source: Banerjee and Lavie, "METEOR", ACL workshop 2005, section 2.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::text {

/// By word of the hypothesis: the words of the reference that it may stand for, ascending.
using AlignmentCandidates = std::vector<std::vector<size_t>>;

inline constexpr int64_t kNoWord = -1;

class WordAlignment {
 public:
  WordAlignment(size_t hypothesis_words, size_t reference_words)
      : reference_of_(hypothesis_words, kNoWord), is_taken_(reference_words) {}

  /// Links words that have none so far, each to at most one: as many as possible; of those
  /// alignments one whose links cross least, each other and those of earlier stages; of these one
  /// with fewest chunks, as later versions of METEOR prefer. The search follows at most
  /// 256 alignments word by word, fewer of long sentences, and of a word the 16 nearest candidates:
  /// it finds the best one unless many words are repeated. Deterministic.
  void add_stage(const AlignmentCandidates& candidates);

  /// By word of the hypothesis; kNoWord: none.
  const std::vector<int64_t>& reference_of() const { return reference_of_; }
  bool is_taken(size_t reference_word) const { return is_taken_[reference_word]; }
  int64_t num_links() const;
  /// Runs of linked words that are neighbours, in the same order, in both sentences.
  int64_t num_chunks() const;

 private:
  std::vector<int64_t> reference_of_;
  std::vector<bool> is_taken_;
};

}  // namespace penstock::text
