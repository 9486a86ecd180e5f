#include "tools/penstock/data/data_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "penstock/report/text/table.h"
#include "penstock/util/text/plural.h"

namespace penstock::tool {

namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string parts_text(const text::PreparedData& data, text::Task task) {
  const bool is_pair = task == text::Task::Translation;
  std::vector<report::Column> columns{{"part", report::Align::Left},
                                      {is_pair ? "pairs" : "sentences"}};
  for (const char* side : {"source ", "target "}) {
    if (!is_pair) side = "";
    for (const char* what : {"words", "tokens", "unknown"})
      columns.push_back({fmt::format("{}{}", side, what)});
    if (!is_pair) break;
  }
  report::Table table(std::move(columns));
  for (size_t p = 0; p < text::kParts; ++p) {
    const text::PartCounts& part = data.parts[p];
    if (part.sentences == 0) continue;
    std::vector<std::string> cells{std::string(text::kPartNames[p]),
                                   fmt::format("{}", part.sentences)};
    for (const text::SideCounts* side : {&part.source, &part.target}) {
      for (const int64_t number : {side->words, side->tokens, side->unknown})
        cells.push_back(fmt::format("{}", number));
      if (!is_pair) break;
    }
    table.add(std::move(cells));
  }
  return table.text();
}

std::string removed_text(const text::Removed& removed) {
  std::vector<std::string> reasons;
  for (const auto& [count, why] : {std::pair{removed.empty, "empty"},
                                   {removed.equal, "equal in both languages"},
                                   {removed.too_short, "too short"},
                                   {removed.too_long, "too long"},
                                   {removed.repeated, "repeated"},
                                   {removed.recurring, "in valid or test, too"}}) {
    if (count > 0) reasons.push_back(fmt::format("{} {}", count, why));
  }
  return reasons.empty() ? "" : fmt::format("left out: {}\n", fmt::join(reasons, ", "));
}

std::string recurrence_text(const text::PreparedData& data) {
  if (data.parts[text::index_of(text::Part::Test)].sentences == 0) return "";
  const text::Recurrence& recurrence = data.recurrence;
  const bool is_less = recurrence.before > recurrence.after;
  return fmt::format(
      "of the test's sources, {} are in train, too{}; {} but for digits and punctuation\n",
      percent(recurrence.after),
      is_less ? fmt::format(" ({} before the removal)", percent(recurrence.before)) : "",
      percent(recurrence.letters));
}

std::string sources_text(const Json& sources) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < std::min(sources.size(), kMost); ++i) {
    const Json& source = sources[i];
    const auto version = source["version"].get<std::string>();
    text += fmt::format("from {}{}{}; licence: {}\n", source["name"].get<std::string>(),
                        version.empty() ? "" : " ", version, source["licence"].get<std::string>());
  }
  if (sources.size() > kMost)
    text += fmt::format("and {} more: {}\n", sources.size() - kMost, text::kManifestName);
  return text;
}

std::string next_text(const text::DataRequest& request) {
  const std::string folder = request.output.string();
  if (request.task == text::Task::Text)
    return fmt::format("next: penstock train --model gpt --data {} --metric perplexity\n", folder);
  return fmt::format("next: penstock train --model gnmt8 --data {} --metric bleu\n", folder);
}

}  // namespace

std::string data_text(const text::PreparedData& data, const text::DataRequest& request) {
  std::string result = fmt::format("{}: {}, vocabulary of {} ({})\n", request.output.string(),
                                   request.task == text::Task::Text ? "a text" : "a translation",
                                   plural(data.vocabulary, "token"),
                                   data.manifest["vocabulary"]["type"].get<std::string>());
  result += parts_text(data, request.task);
  result += removed_text(data.removed);
  result += recurrence_text(data);
  result += sources_text(data.manifest["sources"]);
  for (const std::string& note : data.notes) result += fmt::format("note: {}\n", note);
  return result + next_text(request);
}

Json data_json(const text::PreparedData& data, const text::DataRequest& request) {
  Json json = data.manifest;
  json["output"] = request.output.string();
  json["notes"] = data.notes;
  return json;
}

std::string bleu_text(const text::BleuScore& score) {
  std::vector<std::string> precisions;
  for (const double precision : score.precisions)
    precisions.push_back(fmt::format("{:.1f}", precision));
  return fmt::format(
      "BLEU {:.2f} (n-grams {}; brevity penalty {:.3f}; {} beside {} of the references)\n"
      "case as it is, tokens by 13a, exponential smoothing: sacreBLEU's usual settings\n",
      score.bleu, fmt::join(precisions, "/"), score.brevity_penalty, plural(score.tokens, "token"),
      score.reference_tokens);
}

Json bleu_json(const text::BleuScore& score) {
  return {{"bleu", score.bleu},
          {"precisions", score.precisions},
          {"matches", score.matches},
          {"totals", score.totals},
          {"brevity_penalty", score.brevity_penalty},
          {"tokens", score.tokens},
          {"reference_tokens", score.reference_tokens},
          {"tokenizer", "13a"},
          {"smoothing", "exp"}};
}

std::string meteor_text(const text::MeteorScore& score, bool has_synonyms) {
  const text::MeteorCounts& counts = score.counts;
  return fmt::format(
      "METEOR {:.4f}, the mean of the sentences; {:.4f} of their sums ({} in {}; {} beside {} of "
      "the references)\n"
      "lower case, tokens by 13a; equal words, Porter's stems{}; alpha 0.9, beta 3, gamma 0.5\n",
      score.meteor, score.of_sums, plural(counts.links, "linked word"),
      plural(counts.chunks, "chunk"), plural(counts.words, "word"), counts.reference_words,
      has_synonyms ? ", WordNet's synonyms" : " (no synonyms)");
}

Json meteor_json(const text::MeteorScore& score, bool has_synonyms) {
  return {{"meteor", score.meteor},      {"of_sums", score.of_sums},
          {"links", score.counts.links}, {"chunks", score.counts.chunks},
          {"words", score.counts.words}, {"reference_words", score.counts.reference_words},
          {"synonyms", has_synonyms},    {"tokenizer", "13a"}};
}

}  // namespace penstock::tool
