// METEOR: how well a sentence says what a reference says, by words that are equal, have the same
// stem or are synonyms.
//
//   const WordNet wordnet(kWordNetFolder);
//   const MeteorScore score = corpus_meteor({"a cat sits"}, {{{"the cats sat", "a cat"}}},
//   &wordnet); score.meteor;   // 0 to 1
//
// Source: Banerjee and Lavie, ACL workshop on evaluation measures 2005, sections 2.1 and 2.2. With
// m linked words, precision P = m / words, recall R = m / words of the reference and c chunks:
//
//   mean F = P R / (0.9 P + 0.1 R)          penalty = 0.5 (c / m)^3          score = F (1 -
//   penalty)
//
// These are the paper's 10 P R / (R + 9 P), and NLTK's usual alpha 0.9, beta 3 and gamma 0.5. NLTK
// 3.10.4 has the same score where no word is repeated and no synonym is found. Differs: NLTK links
// a word to the last equal one, ours so that links cross least (word_alignment.h); and NLTK looks
// for synonyms of stems, ours for those of words, so that more are found. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/text/metrics/wordnet.h"

namespace penstock::text {

/// What the score is made of; sums, where it is of several sentences.
struct MeteorCounts {
  int64_t links = 0;
  int64_t chunks = 0;
  int64_t words = 0;
  int64_t reference_words = 0;

  /// By the formula above; 0 without links.
  double score() const;
};

struct MeteorScore {
  double meteor = 0;   ///< the mean of the sentences' scores
  double of_sums = 0;  ///< the formula of `counts`, as the paper scores whole tests
  MeteorCounts counts;
};

/// Sentences of more words are no sentences.
inline constexpr size_t kMostMeteorWords = 1000;

/// Words in lower case, split as BLEU's are (tokenized_13a); punctuation marks are words.
std::vector<std::string> meteor_words(std::string_view line);

/// `synonyms`: null leaves their stage out. Throws ConfigError: more than kMostMeteorWords words.
MeteorCounts sentence_meteor(const std::vector<std::string>& words,
                             const std::vector<std::string>& reference, const WordNet* synonyms);

/// `references[i]`: those of sentence i, of which the one counts that gives the best score. Throws
/// ConfigError: no sentence, a sentence without references, other numbers of sentences, a sentence
/// that is too long.
MeteorScore corpus_meteor(const std::vector<std::string>& hypotheses,
                          const std::vector<std::vector<std::string>>& references,
                          const WordNet* synonyms);

}  // namespace penstock::text
