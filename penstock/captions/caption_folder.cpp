#include "penstock/captions/caption_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <system_error>

#include "penstock/captions/npy_rows.h"
#include "penstock/text/metrics/meteor.h"
#include "penstock/text/vocabulary.h"
#include "penstock/util/error.h"

namespace penstock::captions {

namespace {

using text::Part;

/// Captions of a part one after the other, and which clip each belongs to.
struct FlatCaptions {
  std::vector<std::string> lines;
  std::vector<int32_t> clips;
};

FlatCaptions flat_captions(const std::vector<std::vector<std::string>>& by_clip) {
  FlatCaptions flat;
  for (size_t clip = 0; clip < by_clip.size(); ++clip) {
    for (const std::string& caption : by_clip[clip]) {
      flat.lines.push_back(plain_caption(caption));
      flat.clips.push_back(static_cast<int32_t>(clip));
    }
  }
  return flat;
}

void remove_file(const std::filesystem::path& file) {
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

void write_frames(const CaptionSource& source, Part part, const std::filesystem::path& file) {
  const size_t clips = source.captions[index_of(part)].size();
  if (clips == 0) return remove_file(file);
  NpyWriter writer(file, source.kind == FrameKind::Pixels ? "|u1" : "<f4",
                   {static_cast<int64_t>(clips), source.frames, source.numbers});
  std::string bytes;
  for (size_t clip = 0; clip < clips; ++clip) {
    bytes.clear();
    source.read(part, clip, bytes);
    writer.add(bytes);
  }
  writer.finish();
}

void write_clip_numbers(const std::vector<int32_t>& clips, const std::filesystem::path& file) {
  if (clips.empty()) return remove_file(file);
  NpyWriter writer(file, "<i4", {std::ssize(clips)});
  writer.add({reinterpret_cast<const char*>(clips.data()), clips.size() * sizeof(int32_t)});
  writer.finish();
}

double share_recurring(const FlatCaptions& train, const FlatCaptions& test) {
  const std::set<std::string> known(train.lines.begin(), train.lines.end());
  const auto recurring = std::count_if(test.lines.begin(), test.lines.end(),
                                       [&](const auto& line) { return known.contains(line); });
  return test.lines.empty()
             ? 0
             : static_cast<double>(recurring) / static_cast<double>(test.lines.size());
}

Json manifest_of(const CaptionSource& source, const CaptionOutput& output,
                 const text::Vocabulary& vocabulary, const PreparedCaptions& made) {
  Json parts = Json::object();
  for (size_t p = 0; p < text::kParts; ++p) {
    const CaptionCounts& part = made.parts[p];
    if (part.clips == 0) continue;
    Json json{{"clips", part.clips}, {"captions", part.captions}};
    json.update(text::counts_json(part.words));
    parts[std::string(text::kPartNames[p])] = json;
  }
  return {{"format", "penstock-tokens"},
          {"version", 1},
          {"task", "captions"},
          {"vocabulary", text::vocabulary_json(vocabulary)},
          {"frames",
           {{"count", source.frames},
            {"numbers", source.numbers},
            {"kind", source.kind == FrameKind::Pixels ? "pixels" : "features"}}},
          {"parts", parts},
          {"sources", text::sources_json(source.origins)},
          {"pairs_recur", source.pairs_recur < 0 ? Json(nullptr) : Json(source.pairs_recur)},
          {"recurs", made.captions_recur},
          {"seed", output.seed},
          {"command", output.command}};
}

}  // namespace

std::string plain_caption(const std::string& caption) {
  std::string plain;
  for (const std::string& word : text::meteor_words(caption)) {
    const bool is_word = std::any_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<signed char>(c) < 0;
    });
    if (is_word) plain += (plain.empty() ? "" : " ") + word;
  }
  return plain;
}

PreparedCaptions write_captions(const CaptionSource& source, const CaptionOutput& output) {
  text::check_vocabulary_size(output.vocabulary);
  text::check_token_folder(output.output);
  std::array<FlatCaptions, text::kParts> flat;
  for (size_t p = 0; p < text::kParts; ++p) flat[p] = flat_captions(source.captions[p]);
  const FlatCaptions& train = flat[index_of(Part::Train)];
  const text::Vocabulary vocabulary =
      text::Vocabulary::train(std::vector<std::string_view>(train.lines.begin(), train.lines.end()),
                              {.kind = text::VocabularyKind::Word, .size = output.vocabulary});
  text::open_token_folder(output.output);
  PreparedCaptions made{.parts = {},
                        .captions_recur = share_recurring(train, flat[index_of(Part::Test)]),
                        .vocabulary = vocabulary.size(),
                        .notes = source.notes,
                        .manifest = {}};
  text::write_vocabulary(vocabulary, output.output);
  for (size_t p = 0; p < text::kParts; ++p) {
    const std::string name(text::kPartNames[p]);
    const std::vector<std::string>& lines = flat[p].lines;
    made.parts[p] = {.clips = std::ssize(source.captions[p]),
                     .captions = std::ssize(lines),
                     .words = text::write_lines(
                         output.output, name + ".target", lines.size(),
                         [&lines](size_t i) -> const std::string& { return lines[i]; },
                         /*has_lines=*/p != index_of(Part::Train), vocabulary)};
    write_clip_numbers(flat[p].clips, output.output / (name + ".clips.npy"));
    write_frames(source, static_cast<Part>(p), output.output / (name + ".frames.npy"));
  }
  made.manifest = manifest_of(source, output, vocabulary, made);
  text::write_manifest(made.manifest, output.output);
  return made;
}

}  // namespace penstock::captions
