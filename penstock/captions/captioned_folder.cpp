#include "penstock/captions/captioned_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "penstock/captions/npy_rows.h"
#include "penstock/frames/open_source.h"
#include "penstock/text/plain_text.h"
#include "penstock/text/sources/text_lines.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/printable.h"
#include "penstock/util/text/table_line.h"

namespace penstock::captions {

namespace {

using std::filesystem::path;
using text::Part;

constexpr std::string_view kFeatures = ".npy";
constexpr std::array<std::string_view, 6> kEndings = {kFeatures, ".avi", ".mp4",
                                                      ".mkv",    ".mov", ".webm"};
constexpr std::array<std::string_view, 4> kPlaces = {"", "features", "videos", "clips"};

using CaptionsByClip = std::map<std::string, std::vector<std::string>>;

struct FoundClip {
  path file;
  std::vector<std::string> captions;
};

CaptionsByClip captions_in_lines(const path& file) {
  CaptionsByClip captions;
  const std::vector<std::string> lines = text::read_lines(file);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.empty() || line.starts_with('#')) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos)
      throw ParseError(file.string(), static_cast<int>(i + 1),
                       fmt::format("expected a clip's name and a caption, found '{}'",
                                   printable(line.substr(0, 40))));
    captions[line.substr(0, space)].push_back(line.substr(space + 1));
  }
  return captions;
}

/// Where the table has its columns.
struct CaptionColumns {
  std::optional<size_t> name, caption, start, end, language;
};

CaptionColumns columns_of(const std::vector<std::string>& header, const path& file) {
  const auto column = [&](std::initializer_list<std::string_view> names) -> std::optional<size_t> {
    for (size_t c = 0; c < header.size(); ++c) {
      if (std::find(names.begin(), names.end(), text::folded(header[c])) != names.end()) return c;
    }
    return std::nullopt;
  };
  CaptionColumns found{.name = column({"video", "video_id", "videoid", "name", "file"}),
                       .caption = column({"caption", "sentence", "description"}),
                       .start = column({"start"}),
                       .end = column({"end"}),
                       .language = column({"language"})};
  if (!found.name || !found.caption)
    throw ParseError(file.string(), 1,
                     "expected columns with the clip (video, video_id, name or file) and its "
                     "caption (caption, sentence or description)");
  return found;
}

CaptionsByClip captions_in_table(const path& file) {
  const std::string bytes = read_file(file);
  std::string_view rest = bytes;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  const CaptionColumns columns = columns_of(take_table_line(rest, ','), file);
  CaptionsByClip captions;
  while (!rest.empty()) {
    const std::vector<std::string> cells = take_table_line(rest, ',');
    const auto cell = [&cells](std::optional<size_t> c) {
      return c && *c < cells.size() ? text::single_spaced(cells[*c]) : std::string();
    };
    if (columns.language && cell(columns.language) != "English") continue;
    const std::string caption = cell(columns.caption);
    std::string name = cell(columns.name);
    if (name.empty() || caption.empty()) continue;
    if (columns.start && columns.end)
      name += fmt::format("_{}_{}", cell(columns.start), cell(columns.end));
    captions[name].push_back(caption);
  }
  return captions;
}

CaptionsByClip read_captions(const FolderRequest& request) {
  std::error_code ignored;
  path file = request.captions;
  for (const char* name : {"captions.txt", "captions.csv"}) {
    if (file.empty() && std::filesystem::exists(request.folder / name, ignored))
      file = request.folder / name;
  }
  if (file.empty())
    throw ConfigError(fmt::format("{}: expected captions.txt or captions.csv in this folder",
                                  printable(request.folder.string())));
  CaptionsByClip captions =
      file.extension() == ".csv" ? captions_in_table(file) : captions_in_lines(file);
  if (captions.empty()) throw ParseError(file.string(), 0, "expected captions, found none");
  return captions;
}

/// The file of a clip; its name may have the ending. Names lead nowhere else.
std::optional<path> file_of(const path& folder, const std::string& name) {
  if (name.find('/') != std::string::npos) return std::nullopt;
  std::error_code ignored;
  for (const std::string_view place : kPlaces) {
    const path base = folder / place / name;
    const bool has_ending =
        std::find(kEndings.begin(), kEndings.end(), base.extension().string()) != kEndings.end();
    if (has_ending && std::filesystem::is_regular_file(base, ignored)) return base;
    for (const std::string_view ending : kEndings) {
      const path file = base.string() + std::string(ending);
      if (std::filesystem::is_regular_file(file, ignored)) return file;
    }
  }
  return std::nullopt;
}

using ClipsByPart = std::array<std::vector<FoundClip>, text::kParts>;

/// By part: the clips that a list names, or a share by the seed. `notes` gets what a list names in
/// vain.
ClipsByPart divide_clips(const FolderRequest& request, std::map<std::string, FoundClip> clips,
                         std::vector<std::string>& notes) {
  ClipsByPart parts;
  std::set<std::string> known;
  for (const auto& [name, clip] : clips) known.insert(name);
  bool has_lists = false;
  for (size_t p = 0; p < text::kParts; ++p) {
    const path list = request.folder / fmt::format("{}_list.txt", text::kPartNames[p]);
    std::error_code ignored;
    if (!std::filesystem::exists(list, ignored)) continue;
    has_lists = true;
    std::vector<std::string> unknown;
    for (const std::string& name : text::read_lines(list)) {
      if (!name.empty() && !known.contains(name)) unknown.push_back(name);
      const auto found = clips.find(name);
      if (found == clips.end()) continue;
      parts[p].push_back(std::move(found->second));
      clips.erase(found);  // no clip is in two parts
    }
    if (unknown.empty()) continue;
    notes.push_back(fmt::format(
        "{} has {} without a clip (a file and a caption), which count nothing; the first is '{}'",
        list.filename().string(), plural(std::ssize(unknown), "name"), printable(unknown.front())));
  }
  if (has_lists) return parts;
  std::vector<FoundClip> all;
  for (auto& [name, clip] : clips) all.push_back(std::move(clip));
  Rng(derive_seed(request.shares.seed, hash_name("clips"))).shuffle(std::span<FoundClip>(all));
  const auto count = [&all](double share) {
    return static_cast<size_t>(std::ceil(share * static_cast<double>(all.size())));
  };
  const size_t test = count(request.shares.test);
  const size_t valid = count(request.shares.valid);
  for (size_t i = 0; i < all.size(); ++i) {
    const Part part = i < test ? Part::Test : i < test + valid ? Part::Valid : Part::Train;
    parts[index_of(part)].push_back(std::move(all[i]));
  }
  return parts;
}

/// Which of `count` frames the frame `f` of `wanted` is.
size_t evenly(int64_t f, int64_t wanted, int64_t count) {
  return static_cast<size_t>(wanted < 2 ? 0
                                        : (2 * f * (count - 1) + wanted - 1) / (2 * (wanted - 1)));
}

void append_features(const path& file, int64_t frames, int64_t numbers, std::string& bytes) {
  const NpyRows rows = read_npy_rows(file);
  if (rows.numbers != numbers)
    throw ParseError(file.string(), 0,
                     fmt::format("expected {} numbers for each frame, as the first clip has, "
                                 "found {}",
                                 numbers, rows.numbers));
  for (int64_t f = 0; f < frames; ++f) {
    const size_t row = evenly(f, frames, rows.rows);
    bytes.append(
        reinterpret_cast<const char*>(rows.values.data() + row * static_cast<size_t>(numbers)),
        static_cast<size_t>(numbers) * sizeof(float));
  }
}

void append_video(const path& file, int64_t frames, int side, std::string& bytes) {
  constexpr size_t kMostFrames = 1'000'000;
  constexpr std::chrono::seconds kPatience{30};
  const auto source =
      frames::open_source(file.string(), {.width = side, .height = side, .channels = frames::kRgb});
  // Of a long video every second frame is forgotten, again and again.
  constexpr size_t kMostBytes = size_t{64} << 20;
  std::vector<std::vector<uint8_t>> all;
  frames::Frame frame;
  size_t every = 1;
  for (size_t number = 0; number < kMostFrames; ++number) {
    const frames::Next next = source->next(frame, std::chrono::steady_clock::now() + kPatience);
    if (next == frames::Next::Stalled) {
      throw ParseError(file.string(), 0,
                       fmt::format("expected a frame within {} s, found none after {}",
                                   kPatience.count(), number));
    }
    if (next != frames::Next::Ready) break;
    if (number % every != 0) continue;
    all.push_back(frame.pixels);
    const size_t least = 2 * static_cast<size_t>(frames);
    if (all.size() < least || all.size() * all.front().size() < kMostBytes) continue;
    for (size_t i = 0; 2 * i < all.size(); ++i) all[i] = std::move(all[2 * i]);
    all.resize((all.size() + 1) / 2);
    every *= 2;
  }
  if (all.empty()) throw ParseError(file.string(), 0, "expected a video with frames, found none");
  const auto pixels = static_cast<size_t>(side) * static_cast<size_t>(side);
  for (int64_t f = 0; f < frames; ++f) {
    const std::vector<uint8_t>& one = all[evenly(f, frames, std::ssize(all))];
    for (size_t c = 0; c < 3; ++c) {
      for (size_t i = 0; i < pixels; ++i) bytes += static_cast<char>(one[3 * i + c]);
    }
  }
}

void check_folder_request(const FolderRequest& request) {
  check_shares(request.shares);
  if (request.frames < 1 || request.frames > 1000 || request.side < 8 || request.side > 512)
    throw ConfigError(
        fmt::format("expected 1 to 1000 frames and a side of 8 to 512, found {} and {}",
                    request.frames, request.side));
}

}  // namespace

CaptionSource captioned_folder(const FolderRequest& request) {
  check_folder_request(request);
  std::map<std::string, FoundClip> clips;
  int64_t missing = 0;
  for (auto& [name, captions] : read_captions(request)) {
    if (const std::optional<path> file = file_of(request.folder, name))
      clips[name] = {*file, captions};
    else
      ++missing;
  }
  if (clips.empty())
    throw ConfigError(fmt::format("{}: none of {} with captions has a file there (.npy or a video)",
                                  printable(request.folder.string()), plural(missing, "clip")));
  const path first = clips.begin()->second.file;
  const bool are_features = first.extension() == kFeatures;
  for (const auto& [name, clip] : clips) {
    if ((clip.file.extension() == kFeatures) != are_features)
      throw ConfigError(
          fmt::format("expected features (.npy) alone, or videos alone, found {} "
                      "and {}",
                      printable(first.string()), printable(clip.file.string())));
  }
  std::vector<std::string> notes;
  const auto parts =
      std::make_shared<const ClipsByPart>(divide_clips(request, std::move(clips), notes));
  CaptionSource source{.kind = are_features ? FrameKind::Features : FrameKind::Pixels,
                       .frames = request.frames,
                       .numbers = are_features ? read_npy_rows(first).numbers
                                               : int64_t{3} * request.side * request.side,
                       .captions = {},
                       .read = {},
                       .origins = {{.name = request.folder.string(),
                                    .version = "",
                                    .licence = "the user's own",
                                    .files = {}}},
                       .notes = std::move(notes)};
  for (size_t p = 0; p < text::kParts; ++p) {
    for (const FoundClip& clip : (*parts)[p]) source.captions[p].push_back(clip.captions);
  }
  if (source.captions[index_of(Part::Train)].empty()) {
    throw ConfigError(
        fmt::format("no clip is left to train on: smaller shares, or a longer list, are expected{}",
                    source.notes.empty() ? "" : "; " + source.notes.front()));
  }
  if (missing > 0)
    source.notes.push_back(
        fmt::format("{} with captions have no file and are left out", plural(missing, "clip")));
  source.read = [parts, are_features, frames = source.frames, numbers = source.numbers,
                 side = request.side](Part part, size_t clip, std::string& bytes) {
    const path& file = (*parts)[index_of(part)].at(clip).file;
    if (are_features)
      append_features(file, frames, numbers, bytes);
    else
      append_video(file, frames, side, bytes);
  };
  return source;
}

}  // namespace penstock::captions
