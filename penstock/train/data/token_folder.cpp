#include "penstock/train/data/token_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "penstock/text/token_folder.h"
#include "penstock/train/data/caption_dataset.h"
#include "penstock/train/data/data_formats.h"
#include "penstock/train/data/npy.h"
#include "penstock/train/data/pair_dataset.h"
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
  if (text == "captions") return TokenTask::Captions;
  task.fail(
      fmt::format("expected \"text\", \"translation\" or \"captions\", found \"{:.40}\"", text));
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

using References = std::vector<std::vector<std::string>>;

/// The texts of the test part, of which there are at least `expected`.
std::vector<std::string> read_test_lines(const TokenFolder& folder, int64_t expected) {
  const std::string file = (folder.path / "test.target.txt").string();
  std::vector<std::string> lines;
  std::istringstream text(read_file(file, kMostTextBytes));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  if (std::ssize(lines) < expected)
    throw ParseError(file, 0,
                     fmt::format("expected a line for each of {} sentences, found {} lines",
                                 expected, lines.size()));
  return lines;
}

/// The texts of these sentences of the test part, a line each.
References read_references(const TokenFolder& folder, const std::vector<int64_t>& sentences) {
  const int64_t last = sentences.empty() ? 0 : sentences.back() + 1;
  std::vector<std::string> lines = read_test_lines(folder, last);
  References references;
  for (const int64_t sentence : sentences)
    references.push_back({std::move(lines[static_cast<size_t>(sentence)])});
  return references;
}

/// Of each sample all captions of its clip.
References captions_of(const TokenFolder& folder, const std::vector<int64_t>& clip_of_line,
                       const std::vector<int64_t>& clip_of_sample) {
  const std::vector<std::string> lines = read_test_lines(folder, std::ssize(clip_of_line));
  std::map<int64_t, std::vector<std::string>> by_clip;
  for (size_t i = 0; i < clip_of_line.size(); ++i) by_clip[clip_of_line[i]].push_back(lines[i]);
  References references;
  for (const int64_t clip : clip_of_sample) references.push_back(by_clip.at(clip));
  return references;
}

std::shared_ptr<const Translation> translation_of(const TokenFolder& folder,
                                                  References references) {
  const std::string file = (folder.path / text::kPiecesName).string();
  const auto pieces = std::make_shared<const text::Pieces>(
      text::Pieces::parse(read_file(file, kMostTextBytes), file));
  Translation translation{
      .end = folder.special.end, .references = std::move(references), .text = {}};
  // A model may know more tokens than the vocabulary: those are unknown.
  translation.text = [pieces, unwritten = folder.unwritten](const std::vector<int64_t>& tokens) {
    return pieces->text(tokens, unwritten);
  };
  return std::make_shared<const Translation>(std::move(translation));
}

/// int32 numbers of clips.
std::vector<int64_t> read_clip_numbers(const std::string& file) {
  const StoredArray array = read_npy(file);
  if (array.sizes().size() != 1 || !at::isIntegralType(array.type(), /*includeBool=*/false))
    throw ParseError(file, 0,
                     fmt::format("expected one row of whole numbers, found {}",
                                 describe(array.type(), array.sizes())));
  const at::Tensor numbers = array.block(0, array.size()).to(at::kLong).contiguous();
  const auto* const first = numbers.data_ptr<int64_t>();
  return {first, first + numbers.numel()};
}

CaptionedClips read_clips(const TokenFolder& folder, const std::string& part) {
  const std::string stem = (folder.path / part).string();
  CaptionedClips clips{.frames = read_npy(stem + ".frames.npy"),
                       .scale = folder.clips.are_pixels ? 1.0 / 255 : 1.0,
                       .captions = read_sentences(folder, part, "target"),
                       .clip_of = read_clip_numbers(stem + ".clips.npy")};
  if (clips.frames.sizes().size() != 3)
    throw ParseError(stem + ".frames.npy", 0,
                     fmt::format("expected clips, frames, numbers, found {}",
                                 describe(clips.frames.type(), clips.frames.sizes())));
  return clips;
}

DataParts read_captioned(const DataSpec& spec, const TokenFolder& folder) {
  DataParts found{.test_from = "test"};
  const auto read = [&](const std::string& part, bool one_of_each) {
    const std::string name = (folder.path / part).string();
    auto data = part_of(name, [&] {
      return std::make_shared<CaptionDataset>(name, spec.sample, read_clips(folder, part),
                                              folder.special, spec.ignore_index, one_of_each);
    });
    found.left_out.add(data->left_out());
    return data;
  };
  found.train = read("train", /*one_of_each=*/false);
  std::error_code ignored;
  if (!std::filesystem::exists(folder.path / "test.frames.npy", ignored)) return found;
  const auto test = read("test", /*one_of_each=*/true);
  const auto clips = read_clip_numbers((folder.path / "test.clips.npy").string());
  found.translation = translation_of(folder, captions_of(folder, clips, test->clips()));
  found.test = test;
  return found;
}

ClipSizes clip_sizes(const JsonReader& root) {
  constexpr int64_t kMost = 1 << 24;
  const JsonReader frames = root.at("frames");
  ClipSizes sizes{.frames = frames.at("count").integer(1, kMost),
                  .numbers = frames.at("numbers").integer(1, kMost),
                  .are_pixels = frames.at("kind").text() == "pixels"};
  const JsonReader parts = root.at("parts");
  for (const char* part : {"train", "valid", "test"}) {
    if (parts.has(part))
      sizes.words = std::max(sizes.words, parts.at(part).at("longest").integer(0, kMost));
  }
  return sizes;
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
  if (task == TokenTask::Captions) clips = clip_sizes(root);
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
  if (folder.task == TokenTask::Captions) return read_captioned(spec, folder);
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
      found.translation = translation_of(folder, read_references(folder, test->sentences()));
      found.test = test;
    }
  }
  return found;
}

}  // namespace penstock::train
