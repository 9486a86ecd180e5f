#include "penstock/train/data/token_folder.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include "penstock/text/token_folder.h"
#include "penstock/train/data/data_formats.h"
#include "penstock/train/data/token_files.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

constexpr int64_t kMostManifestBytes = 1 << 24;
constexpr int64_t kMostVocabulary = 1 << 24;
constexpr int64_t kMostTextBytes = int64_t{1} << 30;

/// Says which part an error is about.
template <class Make>
auto part_of(const std::string& part, const Make& make) {
  try {
    return make();
  } catch (const ParseError&) {
    throw;  // names its file
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", printable(part), error.what()));
  }
}

TokenTask task_of(const JsonReader& task) {
  const std::string text = task.text();
  if (text == "text") return TokenTask::Text;
  if (text == "translation") return TokenTask::Translation;
  task.fail(fmt::format("expected \"text\" or \"translation\", found \"{:.40}\"", text));
}

/// `n` + 1 offsets of sentences, each uint64 of the machine's order, ascending from 0 to the number
/// of tokens.
std::vector<int64_t> read_offsets(const std::string& file, int64_t tokens) {
  const FileBytes bytes(file, kMostTokenBytes);
  const std::string_view view = bytes.view();
  if (view.size() % sizeof(uint64_t) != 0 || view.empty()) {
    throw ParseError(file, 0,
                     fmt::format("expected offsets of 8 bytes each, found {} bytes", view.size()));
  }
  std::vector<int64_t> offsets(view.size() / sizeof(uint64_t));
  std::memcpy(offsets.data(), view.data(), view.size());
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1])
      throw ParseError(file, 0, fmt::format("offset {} is below the one before it", i));
  }
  if (offsets.front() != 0 || offsets.back() != tokens) {
    throw ParseError(file, 0,
                     fmt::format("expected offsets from 0 to the {} tokens, found {} to {}", tokens,
                                 offsets.front(), offsets.back()));
  }
  return offsets;
}

Sentences read_sentences(const TokenFolder& folder, std::string_view part, std::string_view side) {
  const std::string stem = (folder.path / fmt::format("{}.{}", part, side)).string();
  Sentences sentences{.tokens = read_tokens(stem + ".bin"), .offsets = {}};
  sentences.offsets = read_offsets(stem + ".idx", sentences.tokens.size());
  return sentences;
}

/// The texts of these sentences of the test part, a line each.
std::vector<std::vector<std::string>> read_references(const TokenFolder& folder,
                                                      const std::vector<int64_t>& sentences) {
  const std::string file = (folder.path / "test.target.txt").string();
  std::vector<std::string> lines;
  std::istringstream text(read_file(file, kMostTextBytes));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::vector<std::vector<std::string>> references;
  for (const int64_t sentence : sentences) {
    if (sentence >= std::ssize(lines)) {
      throw ParseError(file, 0,
                       fmt::format("expected a line for each pair, found {} lines", lines.size()));
    }
    references.push_back({std::move(lines[static_cast<size_t>(sentence)])});
  }
  return references;
}

std::shared_ptr<const Translation> translation_of(const TokenFolder& folder,
                                                  const PairDataset& test) {
  const std::string file = (folder.path / text::kPiecesName).string();
  const auto pieces = std::make_shared<const text::Pieces>(
      text::Pieces::parse(read_file(file, kMostTextBytes), file));
  Translation translation{.end = folder.special.end,
                          .references = read_references(folder, test.sentences()),
                          .text = {}};
  // A model may know more tokens than the vocabulary: those are unknown.
  translation.text = [pieces, unwritten = folder.unwritten](const std::vector<int64_t>& tokens) {
    return pieces->text(tokens, unwritten);
  };
  return std::make_shared<const Translation>(std::move(translation));
}

void check_vocabulary(const TokenFolder& folder, const SampleSpec& sample) {
  for (const model::InputSpec& input : sample.inputs) {
    const bool is_position = input.name.find("position") != std::string::npos;
    if (is_position || input.values == 0 || input.values >= folder.vocabulary) continue;
    throw ConfigError(fmt::format(
        "{}: its vocabulary has {} tokens, and the model's input '{}' knows {}: a model of as many "
        "is expected, or a folder with fewer",
        printable(folder.path.string()), folder.vocabulary, printable(input.name), input.values));
  }
}

}  // namespace

TokenFolder::TokenFolder(std::filesystem::path folder) : path(std::move(folder)) {
  const std::string file = (path / kTokenManifest).string();
  const Json document = parse_json(read_file(file, kMostManifestBytes), file);
  const JsonReader root(document, file);
  check_format(root, "tokens", 1);
  task = task_of(root.at("task"));
  const JsonReader words = root.at("vocabulary");
  vocabulary = words.at("size").integer(1, kMostVocabulary);
  special = {.pad = words.at("pad").integer(0, vocabulary - 1),
             .begin = words.at("begin").integer(0, vocabulary - 1),
             .end = words.at("end").integer(0, vocabulary - 1)};
  unwritten = {.unknown = words.at("unknown").integer(0, vocabulary - 1),
               .silent = {special.pad, special.begin, special.end}};
  if (words.text_or("type", "bpe") != "word") return;
  unwritten.are_words = true;
  unwritten.mark = "<unk>";
}

DataParts read_token_folder(const DataSpec& spec, const std::string& name) {
  const TokenFolder folder(name);
  check_vocabulary(folder, spec.sample);
  DataParts found{.in_order = true, .test_from = "test"};
  const auto has = [&](const std::string& file) {
    std::error_code ignored;
    return std::filesystem::exists(folder.path / file, ignored);
  };
  const auto text = [&](const char* part) {
    const std::string file = (folder.path / part).string() + ".bin";
    return part_of(file, [&] { return language_data(spec, file, read_tokens(file)); });
  };
  const auto pairs = [&](const char* part) {
    const std::string name = (folder.path / part).string();
    auto data = part_of(name, [&] {
      return std::make_shared<PairDataset>(
          name, spec.sample, read_sentences(folder, part, "source"),
          read_sentences(folder, part, "target"), folder.special, spec.ignore_index);
    });
    found.left_out.add(data->left_out());
    return data;
  };
  if (folder.task == TokenTask::Text) {
    found.train = text("train");
    if (has("test.bin")) found.test = text("test");
  } else {
    found.train = pairs("train");
    if (has("test.source.bin")) {
      const auto test = pairs("test");
      found.translation = translation_of(folder, *test);
      found.test = test;
    }
  }
  return found;
}

}  // namespace penstock::train
