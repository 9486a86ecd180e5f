// BLEU of a corpus, as sacreBLEU computes it by default: tokens by mteval-v13a, mixed case, n-grams
// of up to four, exponential smoothing.
//
//   const BleuScore score = corpus_bleu({"the cat sat"}, {{"the cat sat down"}});
//   score.bleu;   // 0 to 100
//
// Source: Papineni et al., ACL 2002, section 2.3; Chen and Cherry, WMT 2014, method 3 (smoothing);
// Post, WMT 2018 (what has to be fixed for scores to be comparable). Pure; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

inline constexpr size_t kBleuOrder = 4;

struct BleuScore {
  double bleu = 0;                                 ///< 0 to 100
  std::array<double, kBleuOrder> precisions = {};  ///< in percent, smoothed
  std::array<int64_t, kBleuOrder> matches = {};
  std::array<int64_t, kBleuOrder> totals = {};
  double brevity_penalty = 0;
  int64_t tokens = 0;            ///< of the hypotheses
  int64_t reference_tokens = 0;  ///< of each one's closest reference
};

/// The tokens of mteval-v13a, with one space between them. Bytes that are no UTF-8 count as
/// letters. German quotation marks stay attached to their words, as this tokenizer knows ASCII
/// alone.
std::string tokenized_13a(std::string_view line);

/// `references[r][i]` is reference r of sentence i. Throws ConfigError: no reference, no sentence,
/// a list of references of another length (sacreBLEU 2.6.0 cuts the longer list off). A corpus
/// whose sentences all have fewer than four tokens scores 0. O(tokens).
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::vector<std::string>>& references);

}  // namespace penstock::text
