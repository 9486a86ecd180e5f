#include "penstock/captions/emoji_clips.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "penstock/captions/emoji_names.h"
#include "penstock/text/plain_text.h"
#include "penstock/text/sources/debian_package.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/rng.h"
#include "penstock/util/text/plural.h"

namespace penstock::captions {

namespace {

using text::Part;
using PicturePair = std::pair<size_t, size_t>;  ///< the lower number first

struct Emoji {
  std::vector<std::string> names;
  std::vector<Picture> pictures;
};

void check_in(const char* what, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    throw ConfigError(fmt::format("{} must be from {} to {}, found {}", what, least, most, value));
}

void check_request(const EmojiRequest& request) {
  check_in("the number of clips", request.clips, 3, 1'000'000);
  check_in("the number of pictures", request.pictures, 4, 1000);
  check_in("the number of frames", request.size.frames, 2, 1000);
  check_in("the side of a frame", request.size.side, kMinClipSide, 512);
  check_shares(request.shares);
  const double others =
      (request.shares.valid + request.shares.test) * static_cast<double>(request.clips);
  if (static_cast<double>(request.clips) - others < 2) {
    throw ConfigError(fmt::format(
        "expected two clips or more to train on, found {} clips, of which {} % are for valid and "
        "test: make more clips",
        request.clips, 100 * (request.shares.valid + request.shares.test)));
  }
}

/// Lower-case letters and spaces, up to three words: what a caption can be made of.
bool is_plain_name(const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(),
                                    [](char c) { return c == ' ' || (c >= 'a' && c <= 'z'); });
  return is_plain && !name.empty() && text::count_words(name) <= 3;
}

Emoji choose_emoji(const EmojiRequest& request, const std::filesystem::path& names) {
  std::vector<EmojiName> known = read_emoji_names(names);
  Rng(derive_seed(request.shares.seed, hash_name("emoji"))).shuffle(std::span<EmojiName>(known));
  EmojiFont font(request.font);
  Emoji chosen;
  std::set<uint32_t> drawn;  // sums of pictures
  std::set<std::string> named;
  for (const EmojiName& emoji : known) {
    if (std::ssize(chosen.names) == request.pictures) break;
    if (!is_plain_name(emoji.name) || !named.insert(emoji.name).second) continue;
    std::optional<Picture> picture = font.picture(emoji.code_point);
    if (!picture) continue;
    const std::string_view bytes(reinterpret_cast<const char*>(picture->pixels.data()),
                                 picture->pixels.size());
    if (!drawn.insert(crc32_of(bytes)).second) continue;
    chosen.names.push_back(emoji.name);
    chosen.pictures.push_back(std::move(*picture));
  }
  if (std::ssize(chosen.names) < request.pictures)
    throw ConfigError(fmt::format("{} are asked for, and {} have a short name and a picture",
                                  plural(request.pictures, "picture"), chosen.names.size()));
  return chosen;
}

/// Every pair of pictures is in one part.
std::array<std::vector<PicturePair>, text::kParts> divide_pairs(const EmojiRequest& request) {
  std::vector<PicturePair> pairs;
  for (size_t a = 0; a < static_cast<size_t>(request.pictures); ++a)
    for (size_t b = 0; b < a; ++b) pairs.emplace_back(b, a);
  Rng(derive_seed(request.shares.seed, hash_name("pairs"))).shuffle(std::span<PicturePair>(pairs));
  const auto share_of = [&pairs](double share) {
    return static_cast<size_t>(std::ceil(share * static_cast<double>(pairs.size())));
  };
  const size_t test = share_of(request.shares.test);
  const size_t valid = share_of(request.shares.valid);
  if (test + valid >= pairs.size())
    throw ConfigError("no pair of pictures is left to train on: smaller shares are expected");
  const auto at = [&pairs](size_t i) { return pairs.begin() + static_cast<std::ptrdiff_t>(i); };
  std::array<std::vector<PicturePair>, text::kParts> parts;
  parts[index_of(Part::Test)].assign(at(0), at(test));
  parts[index_of(Part::Valid)].assign(at(test), at(test + valid));
  parts[index_of(Part::Train)].assign(at(test + valid), pairs.end());
  return parts;
}

Clip random_clip(const std::vector<PicturePair>& pairs, Rng& rng) {
  const auto motion = [&rng] { return static_cast<Motion>(rng.below(kMotionWords.size())); };
  auto [a, b] = pairs[rng.below(pairs.size())];
  if (rng.below(2) == 1) std::swap(a, b);
  Clip clip;
  clip.actors[0] = {a, motion()};
  clip.actors[1] = {b, motion()};
  clip.is_stacked = rng.below(2) == 1;
  clip.seed = rng.next();
  return clip;
}

PicturePair pair_of(const Clip& clip) {
  return std::minmax(clip.actors[0].picture, clip.actors[1].picture);
}

using Clips = std::array<std::vector<Clip>, text::kParts>;

Clips make_clips(const EmojiRequest& request) {
  const auto pairs = divide_pairs(request);
  const std::array<double, text::kParts> shares = {0, request.shares.valid, request.shares.test};
  Clips clips;
  int64_t left = request.clips;
  for (const Part part : {Part::Test, Part::Valid, Part::Train}) {
    const size_t p = index_of(part);
    const int64_t count =
        part == Part::Train
            ? left
            : static_cast<int64_t>(std::ceil(shares[p] * static_cast<double>(request.clips)));
    left -= count;
    Rng rng(derive_seed(request.shares.seed, hash_name(text::kPartNames[p])));
    for (int64_t i = 0; i < count; ++i) clips[p].push_back(random_clip(pairs[p], rng));
  }
  return clips;
}

/// The share of the test's pairs that a clip of train shows; and a note on pictures that none does.
void count_recurring(const Clips& clips, CaptionSource& source) {
  std::set<PicturePair> pairs;
  std::set<size_t> pictures;
  for (const Clip& clip : clips[index_of(Part::Train)]) {
    pairs.insert(pair_of(clip));
    for (const Actor& actor : clip.actors) pictures.insert(actor.picture);
  }
  const std::vector<Clip>& test = clips[index_of(Part::Test)];
  int64_t recurring = 0;
  int64_t unknown = 0;
  for (const Clip& clip : test) {
    recurring += pairs.contains(pair_of(clip)) ? 1 : 0;
    unknown += std::all_of(clip.actors.begin(), clip.actors.end(),
                           [&](const Actor& actor) { return pictures.contains(actor.picture); })
                   ? 0
                   : 1;
  }
  if (!test.empty())
    source.pairs_recur = static_cast<double>(recurring) / static_cast<double>(test.size());
  if (unknown > 0)
    source.notes.push_back(
        fmt::format("{} of the test show a picture that train never shows: more clips are expected",
                    plural(unknown, "clip")));
}

text::Origin origin_of(const char* package, const char* licence,
                       const std::filesystem::path& file) {
  return {.name = package,
          .version = text::package_version(package),
          .licence = licence,
          .files = {file.string()}};
}

}  // namespace

CaptionSource emoji_clips(const EmojiRequest& request) {
  check_request(request);
  const std::filesystem::path names =
      request.names.empty() ? std::filesystem::path(kCldrFolder) / "en.xml" : request.names;
  const auto emoji = std::make_shared<const Emoji>(choose_emoji(request, names));
  const auto clips = std::make_shared<const Clips>(make_clips(request));
  CaptionSource source{.kind = FrameKind::Pixels,
                       .frames = request.size.frames,
                       .numbers = request.size.numbers(),
                       .captions = {},
                       .read = {},
                       .origins = {origin_of("fonts-noto-color-emoji", "OFL-1.1", request.font),
                                   origin_of("unicode-cldr-core", "Unicode-DFS-2016", names)},
                       .notes = {}};
  for (size_t p = 0; p < text::kParts; ++p) {
    for (const Clip& clip : (*clips)[p])
      source.captions[p].push_back({caption_of(clip, emoji->names)});
  }
  count_recurring(*clips, source);
  const auto drawer = std::make_shared<ClipDrawer>(request.size, emoji->pictures);
  source.read = [emoji, clips, drawer, size = request.size](Part part, size_t clip,
                                                            std::string& bytes) {
    std::vector<uint8_t> pixels(static_cast<size_t>(size.frames * size.numbers()));
    drawer->draw((*clips)[index_of(part)].at(clip), pixels);
    bytes.append(reinterpret_cast<const char*>(pixels.data()), pixels.size());
  };
  return source;
}

}  // namespace penstock::captions
