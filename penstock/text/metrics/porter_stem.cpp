#include "penstock/text/metrics/porter_stem.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace penstock::text {

namespace {

using Word = std::string_view;

/// A y is a vowel behind a consonant.
std::vector<bool> vowels_of(Word word) {
  std::vector<bool> vowels(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const bool is_letter = Word("aeiou").find(word[i]) != Word::npos;
    vowels[i] = is_letter || (word[i] == 'y' && i > 0 && !vowels[i - 1]);
  }
  return vowels;
}

/// Porter's m: how often consonants follow vowels.
int64_t measure(Word word) {
  const std::vector<bool> vowels = vowels_of(word);
  int64_t count = 0;
  for (size_t i = 1; i < vowels.size(); ++i) count += vowels[i - 1] && !vowels[i] ? 1 : 0;
  return count;
}

bool has_vowel(Word word) {
  for (const bool is_vowel : vowels_of(word)) {
    if (is_vowel) return true;
  }
  return false;
}

/// Porter's *d.
bool ends_in_double_consonant(Word word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && !vowels_of(word).back();
}

/// Porter's *o: consonant, vowel, consonant, the last no w, x or y.
bool ends_in_short_syllable(Word word) {
  const std::vector<bool> vowels = vowels_of(word);
  const size_t n = word.size();
  if (n == 2) return vowels[0] && !vowels[1];
  return n >= 3 && !vowels[n - 3] && vowels[n - 2] && !vowels[n - 1] &&
         Word("wxy").find(word.back()) == Word::npos;
}

Word without(Word word, size_t letters) { return word.substr(0, word.size() - letters); }

struct SuffixRule {
  Word suffix;
  Word instead;
};

/// The first rule whose suffix the word has is the only one that is tried: where what stands before
/// it has a measure above `above`.
std::string replaced(Word word, std::span<const SuffixRule> rules, int64_t above) {
  for (const SuffixRule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const Word stem = without(word, rule.suffix.size());
    if (rule.suffix == "ion" && !stem.ends_with('s') && !stem.ends_with('t')) break;
    // The l of logi counts as the stem's, so that short ones ("geo") have a measure.
    const Word measured = rule.suffix == "logi" ? without(word, 3) : stem;
    if (measure(measured) <= above) break;
    return std::string(stem) += rule.instead;
  }
  return std::string(word);
}

constexpr SuffixRule kStep2[] = {
    {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"},
    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"}, {"eli", "e"},     {"ousli", "ous"},
    {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},  {"alism", "al"},  {"iveness", "ive"},
    {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},  {"iviti", "ive"}, {"biliti", "ble"},
    {"fulli", "ful"},   {"logi", "log"}};
constexpr SuffixRule kStep3[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                 {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
constexpr SuffixRule kStep4[] = {
    {"al", ""},  {"ance", ""},  {"ence", ""}, {"er", ""},  {"ic", ""},  {"able", ""}, {"ible", ""},
    {"ant", ""}, {"ement", ""}, {"ment", ""}, {"ent", ""}, {"ion", ""}, {"ou", ""},   {"ism", ""},
    {"ate", ""}, {"iti", ""},   {"ous", ""},  {"ive", ""}, {"ize", ""}};

constexpr std::array<std::pair<Word, Word>, 16> kIrregular = {{{"sky", "sky"},
                                                               {"skies", "sky"},
                                                               {"dying", "die"},
                                                               {"lying", "lie"},
                                                               {"tying", "tie"},
                                                               {"news", "news"},
                                                               {"innings", "inning"},
                                                               {"inning", "inning"},
                                                               {"outings", "outing"},
                                                               {"outing", "outing"},
                                                               {"cannings", "canning"},
                                                               {"canning", "canning"},
                                                               {"howe", "howe"},
                                                               {"proceed", "proceed"},
                                                               {"exceed", "exceed"},
                                                               {"succeed", "succeed"}}};

/// Plurals.
Word step_1a(Word word) {
  if (word.ends_with("ies")) return without(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("sses")) return without(word, 2);
  return word.ends_with('s') && !word.ends_with("ss") ? without(word, 1) : word;
}

/// What -ed and -ing leave, whole again.
std::string mended(Word stem) {
  for (const Word end : {"at", "bl", "iz"}) {
    if (stem.ends_with(end)) return std::string(stem) += 'e';
  }
  if (ends_in_double_consonant(stem))
    return std::string(Word("lsz").find(stem.back()) == Word::npos ? without(stem, 1) : stem);
  return measure(stem) == 1 && ends_in_short_syllable(stem) ? std::string(stem) += 'e'
                                                            : std::string(stem);
}

std::string step_1b(Word word) {
  if (word.ends_with("ied")) return std::string(without(word, word.size() == 4 ? 1 : 2));
  if (word.ends_with("eed"))
    return std::string(measure(without(word, 3)) > 0 ? without(word, 1) : word);
  for (const Word end : {"ed", "ing"}) {
    if (word.ends_with(end) && has_vowel(without(word, end.size())))
      return mended(without(word, end.size()));
  }
  return std::string(word);
}

std::string step_1c(std::string word) {
  const size_t n = word.size();
  if (n > 2 && word.back() == 'y' && !vowels_of(word)[n - 2]) word.back() = 'i';
  return word;
}

std::string step_2(std::string word) {
  while (word.ends_with("alli") && measure(without(word, 4)) > 0) word.resize(word.size() - 2);
  return replaced(word, kStep2, 0);
}

std::string step_5(std::string word) {
  if (word.ends_with('e')) {
    const Word stem = without(word, 1);
    const int64_t m = measure(stem);
    if (m > 1 || (m == 1 && !ends_in_short_syllable(stem))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(without(word, 1)) > 1) word.pop_back();
  return word;
}

}  // namespace

std::string porter_stem(std::string_view word) {
  for (const auto& [irregular, stem] : kIrregular) {
    if (irregular == word) return std::string(stem);
  }
  if (word.size() <= 2) return std::string(word);
  const std::string third = replaced(step_2(step_1c(step_1b(step_1a(word)))), kStep3, 0);
  return step_5(replaced(third, kStep4, 1));
}

}  // namespace penstock::text
