#include "penstock/text/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/text/sources/catalogue.h"
#include "penstock/text/sources/libreoffice_help.h"
#include "penstock/text/sources/sword.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/process/log.h"
#include "penstock/util/text/plural.h"

namespace penstock::text {

namespace {

constexpr int64_t kUsualVocabulary = 8000;
constexpr int64_t kUsualMaxWords = 60;

/// The one path of the request, or where the source usually lies.
std::filesystem::path root_of(const DataRequest& request, std::string_view usual) {
  if (request.paths.size() > 1)
    throw ConfigError(fmt::format("{} lies in one folder, found {}", row_of(request.source).name,
                                  plural(std::ssize(request.paths), "path")));
  return request.paths.empty() ? std::filesystem::path(usual) : request.paths[0];
}

void expect_names(const std::vector<std::string>& names, Task task, std::string_view what) {
  const size_t expected = task == Task::Translation ? 2 : 1;
  if (names.size() == expected) return;
  throw ConfigError(fmt::format("expected {} for a {}, found {}",
                                plural(static_cast<int64_t>(expected), what),
                                task == Task::Translation ? "translation" : "text", names.size()));
}

Corpus read_files(const DataRequest& request) {
  if (request.task == Task::Text) {
    if (request.paths.empty()) throw ConfigError("expected files or a folder of text, found none");
    return read_texts(request.paths);
  }
  if (request.paths.empty()) return read_pairs(request.pairs);
  expect_names(request.languages, request.task, "language");
  return read_pairs(
      pair_files_in(root_of(request, ""), request.languages[0], request.languages[1]));
}

Corpus read_gettext(const DataRequest& request) {
  if (request.languages.size() != 1)
    throw ConfigError(
        fmt::format("expected 1 language, that of the translations (messages are "
                    "English), found {}",
                    request.languages.size()));
  return read_catalogues(catalogue_folder(root_of(request, kLocaleFolder), request.languages[0]));
}

Corpus read_help(const DataRequest& request) {
  expect_names(request.languages, request.task, "language");
  return read_libreoffice_help(root_of(request, kLibreOfficeHelp), request.languages);
}

Corpus read_verses_of(const DataRequest& request) {
  expect_names(request.modules, request.task, "module");
  return read_sword(root_of(request, kSwordFolder), request.modules);
}

/// In the order of SourceKind.
constexpr std::array<Corpus (*)(const DataRequest&), kSources.size()> kSourceReaders = {
    read_files, read_help, read_gettext, read_verses_of};

Corpus read_source(const DataRequest& request) {
  return kSourceReaders[static_cast<size_t>(request.source)](request);
}

/// What is asked of a source that does not have it would be of no effect.
void check_source(const DataRequest& request) {
  const SourceRow& row = row_of(request.source);
  const bool has_languages =
      row.has_languages || (request.source == SourceKind::Files &&
                            request.task == Task::Translation && !request.paths.empty());
  if (request.task == Task::Text && !row.has_text)
    throw ConfigError(
        fmt::format("{} has translations alone: there is no text in it to go on with", row.name));
  if (!request.languages.empty() && !has_languages)
    throw ConfigError(
        fmt::format("languages are named, but the source has none to choose from: {}", row.help));
  if (!request.modules.empty() && !row.has_modules)
    throw ConfigError(fmt::format("works of SWORD are named, but the source is {}", row.name));
}

CleanRules rules_of(const DataRequest& request) {
  const bool is_pair = request.task == Task::Translation;
  CleanRules rules{
      .task = request.task,
      .min_words = request.min_words.value_or(is_pair ? row_of(request.source).min_words : 1),
      .max_words = request.max_words};
  if (is_pair && !rules.max_words) rules.max_words = kUsualMaxWords;
  if (rules.min_words < 1 || (rules.max_words && *rules.max_words < rules.min_words))
    throw ConfigError(
        fmt::format("expected at least 1 word, and at most as many or more; found {} "
                    "and {}",
                    rules.min_words, rules.max_words.value_or(rules.min_words)));
  return rules;
}

VocabularySpec vocabulary_spec(const DataRequest& request, const Corpus& corpus) {
  VocabularySpec spec;
  spec.kind = request.kind.value_or(corpus.has_words ? VocabularyKind::Word : VocabularyKind::Bpe);
  spec.size = request.vocabulary.value_or(spec.kind == VocabularyKind::Word ? kMaxVocabulary
                                                                            : kUsualVocabulary);
  return spec;
}

Vocabulary make_vocabulary(const Corpus& corpus, const VocabularySpec& spec) {
  std::vector<std::string_view> lines;
  for (const Sentence& sentence : corpus.at(Part::Train)) {
    lines.push_back(sentence.source);
    if (!sentence.target.empty()) lines.push_back(sentence.target);
  }
  return Vocabulary::train(lines, spec);
}

void add_notes(const DataRequest& request, const Corpus& corpus, const VocabularySpec& spec,
               PreparedData& data) {
  data.notes = corpus.notes;
  if (corpus.is_fixed && (request.min_words || request.max_words))
    data.notes.push_back("this data set stays as it is: limits on words have no effect");
  if (request.vocabulary && data.vocabulary < spec.size)
    data.notes.push_back(fmt::format("the text gives a vocabulary of {} tokens, {} were asked for",
                                     data.vocabulary, spec.size));
  if (spec.kind == VocabularyKind::Word && data.vocabulary == spec.size)
    data.notes.push_back(
        fmt::format("the text has more than {} words: the rarer ones are unknown", spec.size));
  for (size_t p = 1; p < kParts; ++p) {
    if (data.parts[p].sentences == 0)
      data.notes.push_back(fmt::format("there is no part {}", kPartNames[p]));
  }
}

/// Says what is under way where it takes minutes.
void say_if_long(const Corpus& corpus, std::string_view what) {
  constexpr int64_t kMany = 200'000;
  int64_t sentences = 0;
  for (const std::vector<Sentence>& part : corpus.parts) sentences += std::ssize(part);
  if (sentences >= kMany) log_info(fmt::format("{}: {}", plural(sentences, "sentence"), what));
}

Json part_json(const PartCounts& part, Task task) {
  if (task == Task::Text) {
    Json json{{"sentences", part.sentences}};
    json.update(counts_json(part.source));
    return json;
  }
  return {{"pairs", part.sentences},
          {"tokens", part.source.tokens + part.target.tokens},
          {"source", counts_json(part.source)},
          {"target", counts_json(part.target)}};
}

Json removed_json(const Removed& removed) {
  return {{"empty", removed.empty},         {"equal", removed.equal},
          {"too_short", removed.too_short}, {"too_long", removed.too_long},
          {"repeated", removed.repeated},   {"recurring", removed.recurring}};
}

Json manifest_of(const DataRequest& request, const Corpus& corpus, const Vocabulary& vocabulary,
                 const PreparedData& data) {
  Json parts = Json::object();
  for (size_t p = 0; p < kParts; ++p) {
    if (data.parts[p].sentences > 0)
      parts[std::string(kPartNames[p])] = part_json(data.parts[p], request.task);
  }
  return {{"format", "penstock-tokens"},
          {"version", 1},
          {"task", request.task == Task::Text ? "text" : "translation"},
          {"vocabulary", vocabulary_json(vocabulary)},
          {"parts", parts},
          {"sources", sources_json(corpus.origins)},
          {"removed", removed_json(data.removed)},
          {"recurs", data.recurrence.after},
          {"recurs_before_removal", data.recurrence.before},
          {"recurs_in_letters", data.recurrence.letters},
          {"seed", request.shares.seed},
          {"command", request.command}};
}

}  // namespace

PreparedData prepare_data(const DataRequest& request) {
  // Minutes of work must not end in a complaint that was due at the start.
  const CleanRules rules = rules_of(request);
  if (request.vocabulary) check_vocabulary_size(*request.vocabulary);
  check_token_folder(request.output);
  check_source(request);
  PreparedData data;
  Corpus corpus = read_source(request);
  const Divided divided = clean_and_split(corpus, rules, request.shares);
  data.removed = divided.removed;
  data.recurrence = divided.recurrence;
  const VocabularySpec spec = vocabulary_spec(request, corpus);
  say_if_long(corpus, "making a vocabulary");
  const Vocabulary vocabulary = make_vocabulary(corpus, spec);
  open_token_folder(request.output);
  say_if_long(corpus, "writing their tokens");
  data.parts = write_tokens(corpus, request.task, vocabulary, request.output);
  data.vocabulary = vocabulary.size();
  add_notes(request, corpus, spec, data);
  data.manifest = manifest_of(request, corpus, vocabulary, data);
  write_manifest(data.manifest, request.output);
  return data;
}

}  // namespace penstock::text
