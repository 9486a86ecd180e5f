#include "penstock/text/token_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "penstock/text/plain_text.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::text {

namespace {

static_assert(std::endian::native == std::endian::little, "files have their lowest byte first");

template <class Number>
std::string_view bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

struct Encoded {
  std::vector<uint16_t> tokens;
  std::vector<uint64_t> begins;  ///< of each sentence, and the end of the last
  SideCounts counts;
};

Encoded encoded(size_t count, const LineAt& line, bool with_ends, const Vocabulary& vocabulary) {
  Encoded result;
  result.begins.reserve(count + 1);
  result.begins.push_back(0);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = result.tokens.size();
    vocabulary.encode(line(i), result.tokens);
    result.counts.words += count_words(line(i));
    result.counts.longest =
        std::max(result.counts.longest, static_cast<int64_t>(result.tokens.size() - begin));
    if (with_ends) result.tokens.push_back(kEnd);
    result.begins.push_back(result.tokens.size());
  }
  result.counts.tokens = std::ssize(result.tokens);
  result.counts.unknown = std::count(result.tokens.begin(), result.tokens.end(), kUnknown);
  return result;
}

void write_or_remove(const std::filesystem::path& file, std::string_view bytes, bool is_there) {
  std::error_code ignored;
  if (is_there) {
    write_file_atomic(file, bytes);
  } else {
    std::filesystem::remove(file, ignored);
  }
}

}  // namespace

void check_token_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return;
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError(fmt::format("{} is a file: expected a folder to write", folder.string()));
  const bool is_empty = std::filesystem::is_empty(folder, error);
  if (!error && !is_empty && !std::filesystem::exists(folder / kManifestName, error))
    throw ConfigError(fmt::format("{} holds other files (no {}): name a new folder",
                                  folder.string(), kManifestName));
}

void open_token_folder(const std::filesystem::path& folder) {
  check_token_folder(folder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) std::filesystem::remove(folder / kManifestName, error);
  if (error)
    throw ConfigError(fmt::format("{} cannot be written: {}", folder.string(), error.message()));
}

void write_vocabulary(const Vocabulary& vocabulary, const std::filesystem::path& folder) {
  write_file_atomic(folder / kVocabularyName, vocabulary.model());
  write_file_atomic(folder / kPiecesName, vocabulary.pieces());
}

SideCounts write_lines(const std::filesystem::path& folder, const std::string& name, size_t count,
                       const LineAt& line, bool has_lines, const Vocabulary& vocabulary) {
  const bool is_there = count > 0;
  const Encoded result = encoded(count, line, /*with_ends=*/false, vocabulary);
  write_or_remove(folder / (name + ".bin"), bytes_of(result.tokens), is_there);
  write_or_remove(folder / (name + ".idx"), bytes_of(result.begins), is_there);
  if (has_lines) {
    std::string lines;
    for (size_t i = 0; i < count; ++i) lines += line(i) + '\n';
    write_or_remove(folder / (name + ".txt"), lines, is_there);
  }
  return result.counts;
}

std::array<PartCounts, kParts> write_tokens(const Corpus& corpus, Task task,
                                            const Vocabulary& vocabulary,
                                            const std::filesystem::path& folder) {
  write_vocabulary(vocabulary, folder);
  std::array<PartCounts, kParts> counts;
  for (size_t p = 0; p < kParts; ++p) {
    const std::vector<Sentence>& sentences = corpus.parts[p];
    const std::string name(kPartNames[p]);
    counts[p].sentences = std::ssize(sentences);
    const auto side = [&sentences](std::string Sentence::*text) -> LineAt {
      return [&sentences, text](size_t i) -> const std::string& { return sentences[i].*text; };
    };
    if (task == Task::Text) {
      const Encoded row =
          encoded(sentences.size(), side(&Sentence::source), /*with_ends=*/true, vocabulary);
      write_or_remove(folder / (name + ".bin"), bytes_of(row.tokens), !sentences.empty());
      counts[p].source = row.counts;
      continue;
    }
    const bool is_scored = p != index_of(Part::Train);
    counts[p].source = write_lines(folder, name + ".source", sentences.size(),
                                   side(&Sentence::source), is_scored, vocabulary);
    counts[p].target = write_lines(folder, name + ".target", sentences.size(),
                                   side(&Sentence::target), is_scored, vocabulary);
  }
  return counts;
}

Json counts_json(const SideCounts& side) {
  return {{"words", side.words},
          {"tokens", side.tokens},
          {"unknown", side.unknown},
          {"longest", side.longest}};
}

Json vocabulary_json(const Vocabulary& vocabulary) {
  return {{"size", vocabulary.size()},
          {"type", name_of(vocabulary.kind())},
          {"pad", kPad},
          {"unknown", kUnknown},
          {"begin", kBegin},
          {"end", kEnd},
          {"model", kVocabularyName},
          {"crc32", crc32_of(vocabulary.model())}};
}

Json sources_json(const std::vector<Origin>& origins) {
  Json sources = Json::array();
  for (const Origin& origin : origins)
    sources.push_back({{"name", origin.name},
                       {"version", origin.version},
                       {"licence", origin.licence},
                       {"files", origin.files}});
  return sources;
}

void write_manifest(const Json& manifest, const std::filesystem::path& folder) {
  write_file_atomic(folder / kManifestName, to_text(manifest));
}

}  // namespace penstock::text
