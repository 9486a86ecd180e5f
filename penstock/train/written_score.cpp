#include "penstock/train/written_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>

#include "penstock/text/metrics/bleu.h"
#include "penstock/text/metrics/meteor.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::train {

namespace {

using References = std::vector<std::vector<std::string>>;

/// By list of references instead of by sentence. Sentences with fewer than others have their last
/// one again, which changes no score.
References by_list(const References& by_sentence) {
  size_t lists = 0;
  for (const std::vector<std::string>& some : by_sentence) lists = std::max(lists, some.size());
  References result(lists);
  for (size_t list = 0; list < lists; ++list) {
    for (const std::vector<std::string>& some : by_sentence)
      result[list].push_back(some.at(std::min(list, some.size() - 1)));
  }
  return result;
}

}  // namespace

void check_metric_files(Metric metric) {
  if (metric != Metric::Meteor) return;
  try {
    [[maybe_unused]] const text::WordNet wordnet{std::filesystem::path(text::kWordNetFolder)};
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("the metric meteor: {}; or take meteor-stem, which needs none", error.what()));
  }
}

double written_score(Metric metric, const std::vector<std::string>& texts,
                     const Translation& translation) {
  PENSTOCK_CHECK(traits(metric).writes && texts.size() <= translation.references.size(),
                 texts.size(), translation.references.size());
  const References references(
      translation.references.begin(),
      translation.references.begin() + static_cast<std::ptrdiff_t>(texts.size()));
  if (metric == Metric::Bleu) return text::corpus_bleu(texts, by_list(references)).bleu;
  std::optional<text::WordNet> wordnet;
  if (metric == Metric::Meteor) wordnet.emplace(std::filesystem::path(text::kWordNetFolder));
  return text::corpus_meteor(texts, references, wordnet ? &*wordnet : nullptr).meteor;
}

}  // namespace penstock::train
