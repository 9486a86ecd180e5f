// penstock data: texts and translations as folders of tokens, BLEU and METEOR.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "penstock/text/prepare.h"
#include "penstock/text/sources/text_lines.h"
#include "penstock/util/error.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/data/captions_command.h"
#include "tools/penstock/data/data_text.h"

namespace penstock::tool {

namespace {

struct DataOptions : CommonOptions {
  text::DataRequest request;
  std::vector<std::string> from;
  std::string output;
  std::array<std::array<std::string, 2>, text::kParts> pairs;  ///< by part: source, target
};

struct ScoreOptions : CommonOptions {
  std::string hypotheses;
  std::vector<std::string> references;
  bool without_synonyms = false;
  std::string wordnet = std::string(text::kWordNetFolder);
};

/// The words as a shell reads them.
std::string as_typed(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) ||
             std::string_view("-_./=,:+").find(c) != std::string_view::npos;
    });
    std::string inside;
    for (const char c : word) inside += c == '\'' ? std::string("'\\''") : std::string(1, c);
    quoted.push_back(is_plain ? word : "'" + inside + "'");
  }
  if (!quoted.empty()) quoted[0] = "penstock";
  return fmt::format("{}", fmt::join(quoted, " "));
}

/// The source that the first word of --from names, and the paths behind it; or paths alone.
void take_from(DataOptions& options) {
  text::DataRequest& request = options.request;
  std::vector<std::string> words = options.from;
  const auto named =
      std::find_if(text::kSources.begin(), text::kSources.end(),
                   [&](const auto& row) { return !words.empty() && row.name == words[0]; });
  // "pairs" says that the files come by options of their own.
  const bool is_pairs =
      request.task == text::Task::Translation && !words.empty() && words[0] == "pairs";
  if (named != text::kSources.end())
    request.source = static_cast<text::SourceKind>(named - text::kSources.begin());
  if (named != text::kSources.end() || is_pairs) words.erase(words.begin());
  request.paths.assign(words.begin(), words.end());
  for (size_t p = 0; p < text::kParts; ++p)
    request.pairs[p] = {options.pairs[p][0], options.pairs[p][1]};
  const bool has_pairs = std::any_of(request.pairs.begin(), request.pairs.end(),
                                     [](const auto& pair) { return pair != text::PairFiles{}; });
  if (has_pairs && (request.source != text::SourceKind::Files || !request.paths.empty()))
    throw ConfigError("--source, --target and those of valid and test go with --from pairs alone");
}

int run_data(DataOptions& options) {
  text::DataRequest& request = options.request;
  take_from(options);
  request.output = options.output;
  request.shares.seed = options.seed;
  const text::PreparedData data = text::prepare_data(request);
  const std::string shown =
      options.json
          ? data_json(data, request).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
          : data_text(data, request);
  write_output("", shown);
  return kExitYes;
}

void add_data_options(CLI::App& app, DataOptions& options) {
  text::DataRequest& request = options.request;
  app.add_option("-o,--output", options.output,
                 "Folder to write: new, empty, or one of an earlier run")
      ->required();
  app.add_option("--vocabulary", request.vocabulary,
                 "Tokens at most (default: 8000; of words all, up to 65535)");
  app.add_option_function<std::string>(
         "--vocabulary-type",
         [&request](const std::string& name) {
           request.kind = parse_option("--vocabulary-type:", name, text::parse_vocabulary_kind);
         },
         "bpe (default), unigram, or word (default for Penn Treebank's and WikiText's files)")
      ->type_name("TEXT");
  app.add_option("--min-words", request.min_words, "Leave out sentences of fewer words");
  app.add_option("--max-words", request.max_words,
                 "Leave out sentences of more words (default: 60 of a translation)");
  app.add_option("--valid-share", request.shares.valid, "Share of the sentences for validation")
      ->capture_default_str();
  app.add_option("--test-share", request.shares.test, "Share of the sentences for the test")
      ->capture_default_str();
  add_common(app, options);
}

CLI::App* add_names(CLI::App* app, text::DataRequest& request) {
  app->add_option("--languages", request.languages,
                  "Languages, as in en-US de; of gettext that of the translations")
      ->delimiter(',');
  app->add_option("--modules", request.modules, "Works of SWORD, as in KJV spaRV")->delimiter(',');
  return app;
}

/// "libreoffice-help (...) [FOLDER]; ...; ".
std::string source_help(text::Task task) {
  std::string help;
  for (const text::SourceRow& row : text::kSources) {
    const bool is_own = &row == &text::row_of(text::SourceKind::Files);
    if (!is_own && (task == text::Task::Translation || row.has_text))
      help += fmt::format("{} ({}) [FOLDER]; ", row.name, row.help);
  }
  return help;
}

Command translation_command(CLI::App& parent, const std::string& typed) {
  auto options = std::make_shared<DataOptions>();
  options->request.task = text::Task::Translation;
  options->request.command = typed;
  CLI::App* app =
      add_names(parent.add_subcommand("translation", "Sentences and their translations as tokens"),
                options->request);
  app->add_option("--from", options->from,
                  source_help(options->request.task) +
                      "pairs; or a folder with files as train.en and train.de")
      ->required();
  constexpr std::array<std::string_view, text::kParts> kPrefixes = {"", "valid-", "test-"};
  for (size_t p = 0; p < text::kParts; ++p) {
    const std::string_view part = text::kPartNames[p];
    app->add_option(fmt::format("--{}source", kPrefixes[p]), options->pairs[p][0],
                    fmt::format("Sentences of {}, one a line (with --from pairs)", part));
    app->add_option(fmt::format("--{}target", kPrefixes[p]), options->pairs[p][1],
                    fmt::format("Their translations (with --from pairs)"));
  }
  add_data_options(*app, *options);
  return {app, [options]() { return run_data(*options); }};
}

Command text_command(CLI::App& parent, const std::string& typed) {
  auto options = std::make_shared<DataOptions>();
  options->request.task = text::Task::Text;
  options->request.command = typed;
  CLI::App* app =
      add_names(parent.add_subcommand("text", "A text as one row of tokens"), options->request);
  app->add_option("--from", options->from,
                  source_help(options->request.task) +
                      "files; or a folder of .txt files, of Penn Treebank or of WikiText")
      ->required();
  add_data_options(*app, *options);
  return {app, [options]() { return run_data(*options); }};
}

struct ScoredLines {
  std::vector<std::string> hypotheses;
  std::vector<std::vector<std::string>> references;  ///< by file
};

ScoredLines read_scored(const ScoreOptions& options) {
  ScoredLines lines{.hypotheses = text::read_lines(options.hypotheses), .references = {}};
  for (const std::string& file : options.references) {
    lines.references.push_back(text::read_lines(file));
    if (lines.references.back().size() != lines.hypotheses.size())
      throw ConfigError(fmt::format(
          "{} has {} lines, {} has {}: expected a reference on the line of "
          "the same number",
          options.hypotheses, lines.hypotheses.size(), file, lines.references.back().size()));
  }
  return lines;
}

int run_bleu(const ScoreOptions& options) {
  const ScoredLines lines = read_scored(options);
  const text::BleuScore score = text::corpus_bleu(lines.hypotheses, lines.references);
  write_output("", options.json ? bleu_json(score).dump() + "\n" : bleu_text(score));
  return kExitYes;
}

void add_score_options(CLI::App& app, ScoreOptions& options) {
  app.add_option("hypotheses", options.hypotheses, "Sentences to be scored, one a line")
      ->required();
  app.add_option("references", options.references,
                 "Files of references: the line of the same number")
      ->required();
  add_common(app, options);
}

Command bleu_command(CLI::App& parent) {
  auto options = std::make_shared<ScoreOptions>();
  CLI::App* app = parent.add_subcommand("bleu", "BLEU of translations, as sacreBLEU computes it");
  add_score_options(*app, *options);
  return {app, [options]() { return run_bleu(*options); }};
}

int run_meteor(const ScoreOptions& options) {
  const ScoredLines lines = read_scored(options);
  std::vector<std::vector<std::string>> by_sentence(lines.hypotheses.size());
  for (size_t i = 0; i < by_sentence.size(); ++i) {
    for (const std::vector<std::string>& list : lines.references) by_sentence[i].push_back(list[i]);
  }
  std::optional<text::WordNet> wordnet;
  if (!options.without_synonyms) {
    try {
      wordnet.emplace(std::filesystem::path(options.wordnet));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}; or leave synonyms out: --no-synonyms", error.what()));
    }
  }
  const text::MeteorScore score =
      text::corpus_meteor(lines.hypotheses, by_sentence, wordnet ? &*wordnet : nullptr);
  write_output("", options.json ? meteor_json(score, !options.without_synonyms).dump() + "\n"
                                : meteor_text(score, !options.without_synonyms));
  return kExitYes;
}

Command meteor_command(CLI::App& parent) {
  auto options = std::make_shared<ScoreOptions>();
  CLI::App* app = parent.add_subcommand(
      "meteor", "METEOR of sentences: equal words, equal stems, synonyms (English)");
  CLI::Option* none = app->add_flag("--no-synonyms", options->without_synonyms,
                                    "Without WordNet: equal words and stems alone");
  app->add_option("--wordnet", options->wordnet, "The folder of WordNet's files")
      ->capture_default_str()
      ->excludes(none);
  add_score_options(*app, *options);
  return {app, [options]() { return run_meteor(*options); }};
}

}  // namespace

std::vector<Command> data_commands(CLI::App& parent, const std::vector<std::string>& words) {
  CLI::App* app = parent.add_subcommand(
      "data", "Texts, translations and captioned clips as folders of tokens; BLEU and METEOR");
  app->require_subcommand(1);
  const std::string typed = as_typed(words);
  return {translation_command(*app, typed), text_command(*app, typed),
          captions_command(*app, typed), bleu_command(*app), meteor_command(*app)};
}

}  // namespace penstock::tool
