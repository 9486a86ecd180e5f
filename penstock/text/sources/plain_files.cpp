#include "penstock/text/sources/plain_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "penstock/text/sources/files_in.h"
#include "penstock/text/sources/text_lines.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::text {

namespace {

const std::string kOwnLicence = "that of the files";

/// The files of a data set that many results stand on.
struct KnownForm {
  std::array<std::string_view, kParts> files;
  std::string_view name;
  bool has_words = false;
};

constexpr std::array<KnownForm, 4> kKnownForms = {
    {{.files = {"ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"},
      .name = "Penn Treebank",
      .has_words = true},
     {.files = {"wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"},
      .name = "WikiText",
      .has_words = true},
     {.files = {"wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"}, .name = "WikiText, raw"},
     {.files = {"train.txt", "valid.txt", "test.txt"}, .name = "train.txt, valid.txt, test.txt"}}};

/// A thousandth of the text, but a hundred lines at most.
uint32_t lines_per_document(size_t lines) {
  return static_cast<uint32_t>(std::clamp<size_t>(lines / 1000, 1, 100));
}

std::vector<Sentence> sentences_of(std::vector<std::string> lines, uint32_t& document) {
  const uint32_t block = lines_per_document(lines.size());
  std::vector<Sentence> sentences;
  sentences.reserve(lines.size());
  for (size_t i = 0; i < lines.size(); ++i)
    sentences.push_back({std::move(lines[i]), "", document + static_cast<uint32_t>(i) / block});
  document += static_cast<uint32_t>(lines.size()) / block + 1;
  return sentences;
}

const KnownForm* known_form(const std::filesystem::path& folder) {
  for (const KnownForm& form : kKnownForms) {
    if (std::all_of(form.files.begin(), form.files.end(), [&](std::string_view name) {
          std::error_code ignored;
          return std::filesystem::is_regular_file(folder / name, ignored);
        }))
      return &form;
  }
  return nullptr;
}

Corpus read_known(const std::filesystem::path& folder, const KnownForm& form) {
  Corpus corpus;
  corpus.is_given = {true, true, true};
  corpus.is_fixed = true;
  corpus.has_words = form.has_words;
  Origin origin{std::string(form.name), "", kOwnLicence, {}};
  uint32_t document = 0;
  for (size_t p = 0; p < kParts; ++p) {
    const std::filesystem::path file = folder / form.files[p];
    corpus.parts[p] = sentences_of(read_lines(file), document);
    origin.files.push_back(file.string());
  }
  corpus.origins.push_back(std::move(origin));
  return corpus;
}

void read_pair(const PairFiles& files, std::string_view part, std::vector<Sentence>& out) {
  if (files.source.empty() != files.target.empty())
    throw ConfigError(
        fmt::format("{}: expected a file of sentences and one of translations, found "
                    "{} alone",
                    part, (files.source.empty() ? files.target : files.source).string()));
  std::vector<std::string> source = read_lines(files.source);
  std::vector<std::string> target = read_lines(files.target);
  if (source.size() != target.size())
    throw ConfigError(
        fmt::format("{} has {}, {} has {}: expected the translation of each line on "
                    "the line of the same number",
                    files.source.string(), plural(std::ssize(source), "line"),
                    files.target.string(), std::ssize(target)));
  const uint32_t block = lines_per_document(source.size());
  for (size_t i = 0; i < source.size(); ++i)
    out.push_back({std::move(source[i]), std::move(target[i]), static_cast<uint32_t>(i) / block});
}

/// Beginnings of names in both languages.
std::vector<std::string> common_stems(const std::filesystem::path& folder,
                                      const std::string& source, const std::string& target) {
  std::vector<std::string> stems;
  for (const std::string& name : files_in(folder, "." + source)) {
    std::string stem = name.substr(0, name.size() - source.size() - 1);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder / fmt::format("{}.{}", stem, target), ignored))
      stems.push_back(std::move(stem));
  }
  return stems;
}

/// The one stem that begins with one of these; empty: none does.
std::string only_stem(const std::vector<std::string>& stems,
                      std::initializer_list<std::string_view> beginnings) {
  std::vector<std::string> found;
  for (const std::string& stem : stems) {
    if (std::any_of(beginnings.begin(), beginnings.end(),
                    [&](std::string_view begin) { return stem.starts_with(begin); }))
      found.push_back(stem);
  }
  if (found.size() > 1)
    throw ConfigError(
        fmt::format("expected one of the files {}: say which by giving the files "
                    "themselves",
                    fmt::join(found, ", ")));
  return found.empty() ? "" : found.front();
}

}  // namespace

Corpus read_texts(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files = paths;
  std::error_code ignored;
  if (paths.size() == 1 && std::filesystem::is_directory(paths[0], ignored)) {
    if (const KnownForm* form = known_form(paths[0])) return read_known(paths[0], *form);
    files.clear();
    for (const std::string& name : files_in(paths[0], ".txt")) files.push_back(paths[0] / name);
    if (files.empty()) {
      std::vector<std::string_view> forms;
      forms.reserve(kKnownForms.size());
      for (const KnownForm& form : kKnownForms) forms.push_back(form.files[0]);
      throw ConfigError(
          fmt::format("{}: expected a data set (a folder with {} and its valid and "
                      "test) or files that end in .txt, found none",
                      paths[0].string(), fmt::join(forms, ", ")));
    }
  }
  Corpus corpus;
  Origin origin{"files", "", kOwnLicence, {}};
  uint32_t document = 0;
  for (const std::filesystem::path& file : files) {
    std::vector<Sentence> sentences = sentences_of(read_lines(file), document);
    std::move(sentences.begin(), sentences.end(), std::back_inserter(corpus.at(Part::Train)));
    origin.files.push_back(file.string());
  }
  corpus.origins.push_back(std::move(origin));
  return corpus;
}

Corpus read_pairs(const std::array<PairFiles, kParts>& files) {
  Corpus corpus;
  Origin origin{"files", "", kOwnLicence, {}};
  if (files[0] == PairFiles{})
    throw ConfigError("expected files to train on: one of sentences and one of translations");
  for (size_t p = 0; p < kParts; ++p) {
    if (files[p] == PairFiles{}) continue;
    corpus.is_given[p] = true;
    read_pair(files[p], kPartNames[p], corpus.parts[p]);
    origin.files.push_back(files[p].source.string());
    origin.files.push_back(files[p].target.string());
  }
  corpus.origins.push_back(std::move(origin));
  return corpus;
}

std::array<PairFiles, kParts> pair_files_in(const std::filesystem::path& folder,
                                            const std::string& source, const std::string& target) {
  const std::vector<std::string> stems = common_stems(folder, source, target);
  std::array<std::string, kParts> chosen = {
      only_stem(stems, {"train"}), only_stem(stems, {"valid", "dev"}), only_stem(stems, {"test"})};
  std::vector<std::string> news;
  for (const std::string& stem : stems) {
    if (stem.starts_with("newstest")) news.push_back(stem);
  }
  for (const Part part : {Part::Test, Part::Valid}) {
    if (!chosen[index_of(part)].empty() || news.empty()) continue;
    chosen[index_of(part)] = news.back();
    news.pop_back();
  }
  if (chosen[0].empty())
    throw ConfigError(fmt::format(
        "{}: expected train.{} and train.{} (names that begin so will do), "
        "found {}",
        folder.string(), source, target, stems.empty() ? "no pair of files" : "no such pair"));
  std::array<PairFiles, kParts> files;
  for (size_t p = 0; p < kParts; ++p) {
    if (!chosen[p].empty())
      files[p] = {folder / (chosen[p] + "." + source), folder / (chosen[p] + "." + target)};
  }
  return files;
}

}  // namespace penstock::text
