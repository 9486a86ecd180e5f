#include "penstock/text/metrics/meteor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "penstock/text/metrics/bleu.h"
#include "penstock/text/metrics/porter_stem.h"
#include "penstock/text/metrics/word_alignment.h"
#include "penstock/text/plain_text.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::text {

namespace {

using Words = std::vector<std::string>;

/// Links words whose keys are equal.
void link_equal(const Words& words, const Words& reference, WordAlignment& alignment,
                const std::function<std::string(const std::string&)>& key) {
  std::map<std::string, std::vector<size_t>> places;
  for (size_t r = 0; r < reference.size(); ++r) {
    if (!alignment.is_taken(r)) places[key(reference[r])].push_back(r);
  }
  AlignmentCandidates candidates(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    if (alignment.reference_of()[i] != kNoWord) continue;
    const auto found = places.find(key(words[i]));
    if (found != places.end()) candidates[i] = found->second;
  }
  alignment.add_stage(candidates);
}

void link_synonyms(const Words& words, const Words& reference, const WordNet& wordnet,
                   WordAlignment& alignment) {
  std::vector<std::vector<int64_t>> meanings(reference.size());
  for (size_t r = 0; r < reference.size(); ++r) {
    if (!alignment.is_taken(r)) meanings[r] = wordnet.synsets(reference[r]);
  }
  AlignmentCandidates candidates(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    if (alignment.reference_of()[i] != kNoWord) continue;
    const std::vector<int64_t> own = wordnet.synsets(words[i]);
    for (size_t r = 0; r < reference.size(); ++r) {
      if (have_common(own, meanings[r])) candidates[i].push_back(r);
    }
  }
  alignment.add_stage(candidates);
}

void check_length(const Words& words) {
  if (words.size() > kMostMeteorWords)
    throw ConfigError(fmt::format("METEOR is of sentences of up to {} words, found one of {}",
                                  kMostMeteorWords, words.size()));
}

}  // namespace

double MeteorCounts::score() const {
  if (links == 0) return 0;
  constexpr double kAlpha = 0.9;
  constexpr double kBeta = 3;
  constexpr double kGamma = 0.5;
  const auto matched = static_cast<double>(links);
  const double precision = matched / static_cast<double>(words);
  const double recall = matched / static_cast<double>(reference_words);
  const double mean = precision * recall / (kAlpha * precision + (1 - kAlpha) * recall);
  return mean * (1 - kGamma * std::pow(static_cast<double>(chunks) / matched, kBeta));
}

std::vector<std::string> meteor_words(std::string_view line) {
  const std::string text = tokenized_13a(folded(line));
  Words words;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, space - at));
    at = space + 1;
  }
  return words;
}

MeteorCounts sentence_meteor(const Words& words, const Words& reference, const WordNet* synonyms) {
  check_length(words);
  check_length(reference);
  WordAlignment alignment(words.size(), reference.size());
  link_equal(words, reference, alignment, [](const std::string& word) { return word; });
  link_equal(words, reference, alignment,
             [](const std::string& word) { return porter_stem(word); });
  if (synonyms != nullptr) link_synonyms(words, reference, *synonyms, alignment);
  return {.links = alignment.num_links(),
          .chunks = alignment.num_chunks(),
          .words = std::ssize(words),
          .reference_words = std::ssize(reference)};
}

MeteorScore corpus_meteor(const std::vector<std::string>& hypotheses,
                          const std::vector<std::vector<std::string>>& references,
                          const WordNet* synonyms) {
  if (hypotheses.empty()) throw ConfigError("METEOR needs at least one sentence, found none");
  if (references.size() != hypotheses.size())
    throw ConfigError(fmt::format("expected references for each of {}, found them for {}",
                                  plural(std::ssize(hypotheses), "sentence"), references.size()));
  MeteorScore score;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    if (references[i].empty())
      throw ConfigError(fmt::format("sentence {} has no reference: METEOR needs one", i + 1));
    const Words words = meteor_words(hypotheses[i]);
    MeteorCounts best;
    for (const std::string& reference : references[i]) {
      const MeteorCounts counts = sentence_meteor(words, meteor_words(reference), synonyms);
      if (&reference == references[i].data() || counts.score() > best.score()) best = counts;
    }
    score.meteor += best.score() / static_cast<double>(hypotheses.size());
    score.counts.links += best.links;
    score.counts.chunks += best.chunks;
    score.counts.words += best.words;
    score.counts.reference_words += best.reference_words;
  }
  score.of_sums = score.counts.score();
  return score;
}

}  // namespace penstock::text
