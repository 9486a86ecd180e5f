#include "penstock/text/metrics/bleu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <unordered_map>

#include "penstock/text/plain_text.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::text {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }

/// Punctuation and symbols of ASCII but apostrophe, comma, hyphen and full stop.
bool is_symbol(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
    result.append(text, at, found - at);
    result += to;
    at = found + from.size();
  }
  if (at == 0) return;
  result.append(text, at);
  text = std::move(result);
}

/// Where `first` and `second` hold for two bytes in a row, `write` puts others; the search goes on
/// behind both.
template <class First, class Second, class Write>
std::string with_pairs(const std::string& text, First first, Second second, Write write) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && first(text[i]) && second(text[i + 1])) {
      write(result, text[i], text[i + 1]);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

/// Words between white space. (Not single_spaced(): other control characters are no space here.)
std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t word = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!is_white_space(next_code_point(text, at))) continue;
    if (begin > word) words.push_back(text.substr(word, begin - word));
    word = at;
  }
  if (word < text.size()) words.push_back(text.substr(word));
  return words;
}

using Counts = std::unordered_map<std::string_view, int64_t>;

/// The n-grams of a tokenized line, which are parts of it.
Counts count_ngrams(std::string_view line, const std::vector<std::string_view>& tokens, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= tokens.size(); ++i) {
    const char* const begin = tokens[i].data();
    const std::string_view last = tokens[i + n - 1];
    ++counts[line.substr(static_cast<size_t>(begin - line.data()),
                         static_cast<size_t>(last.data() + last.size() - begin))];
  }
  return counts;
}

struct TokenizedLine {
  explicit TokenizedLine(std::string_view line) : text(tokenized_13a(line)) {
    tokens = split_words(text);
  }
  ~TokenizedLine() = default;
  TokenizedLine(const TokenizedLine&) = delete;
  TokenizedLine& operator=(const TokenizedLine&) = delete;

  std::string text;
  std::vector<std::string_view> tokens;
};

void add_sentence(const std::string& hypothesis,
                  const std::vector<std::vector<std::string>>& references, size_t i,
                  BleuScore& score) {
  const TokenizedLine line(hypothesis);
  const int64_t length = std::ssize(line.tokens);
  std::array<Counts, kBleuOrder> most;  // over the references
  std::vector<std::string> kept;        // what the n-grams are parts of
  kept.reserve(references.size());
  int64_t closest = -1;
  for (const std::vector<std::string>& reference : references) {
    const std::string& text = kept.emplace_back(tokenized_13a(reference[i]));
    const std::vector<std::string_view> tokens = split_words(text);
    const int64_t size = std::ssize(tokens);
    const int64_t gap = std::abs(size - length);
    const int64_t best = std::abs(closest - length);
    if (closest < 0 || gap < best || (gap == best && size < closest)) closest = size;
    for (size_t n = 1; n <= kBleuOrder; ++n) {
      for (const auto& [ngram, count] : count_ngrams(text, tokens, n)) {
        int64_t& known = most[n - 1][ngram];
        known = std::max(known, count);
      }
    }
  }
  score.tokens += length;
  score.reference_tokens += closest;
  for (size_t n = 1; n <= kBleuOrder; ++n) {
    score.totals[n - 1] += std::max<int64_t>(0, length - static_cast<int64_t>(n) + 1);
    for (const auto& [ngram, count] : count_ngrams(line.text, line.tokens, n)) {
      const auto found = most[n - 1].find(ngram);
      if (found != most[n - 1].end()) score.matches[n - 1] += std::min(count, found->second);
    }
  }
}

void finish_score(BleuScore& score) {
  if (score.tokens > 0)
    score.brevity_penalty = score.tokens >= score.reference_tokens
                                ? 1.0
                                : std::exp(1.0 - static_cast<double>(score.reference_tokens) /
                                                     static_cast<double>(score.tokens));
  if (score.matches == std::array<int64_t, kBleuOrder>{}) return;
  double smoothing = 1;
  double sum = 0;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    if (score.totals[n] == 0) return;  // no n-gram of this length: the mean is 0
    auto matches = static_cast<double>(score.matches[n]);
    if (score.matches[n] == 0) {
      smoothing *= 2;
      matches = 1 / smoothing;
    }
    score.precisions[n] = 100 * matches / static_cast<double>(score.totals[n]);
    sum += std::log(score.precisions[n]);
  }
  score.bleu = score.brevity_penalty * std::exp(sum / static_cast<double>(kBleuOrder));
}

}  // namespace

std::string tokenized_13a(std::string_view line) {
  std::string text(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  for (const auto& [entity, character] :
       {std::pair{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}})
    replace_all(text, entity, character);
  std::string spaced = " ";
  for (const char c : text) {
    if (is_symbol(c)) {
      spaced += {' ', c, ' '};
    } else {
      spaced += c;
    }
  }
  spaced += ' ';
  const auto no_digit = [](char c) { return !is_digit(c); };
  spaced = with_pairs(spaced, no_digit, is_stop, [](std::string& out, char a, char b) {
    out += {a, ' ', b, ' '};
  });
  spaced = with_pairs(spaced, is_stop, no_digit, [](std::string& out, char a, char b) {
    out += {' ', a, ' ', b};
  });
  spaced = with_pairs(
      spaced, is_digit, [](char c) { return c == '-'; },
      [](std::string& out, char a, char b) {
        out += {a, ' ', b, ' '};
      });
  std::string result;
  for (const std::string_view word : split_words(spaced)) {
    if (!result.empty()) result += ' ';
    result += word;
  }
  return result;
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::vector<std::string>>& references) {
  if (references.empty()) throw ConfigError("BLEU needs at least one reference, found none");
  if (hypotheses.empty()) throw ConfigError("BLEU needs at least one sentence, found none");
  for (size_t r = 0; r < references.size(); ++r) {
    if (references[r].size() != hypotheses.size())
      throw ConfigError(
          fmt::format("expected a reference for each line, found {} and {} in list {}",
                      plural(std::ssize(hypotheses), "line"),
                      plural(std::ssize(references[r]), "reference"), r + 1));
  }
  BleuScore score;
  for (size_t i = 0; i < hypotheses.size(); ++i) add_sentence(hypotheses[i], references, i, score);
  finish_score(score);
  return score;
}

}  // namespace penstock::text
