#include "tools/penstock/data/captions_command.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

#include "penstock/captions/caption_folder.h"
#include "penstock/captions/captioned_folder.h"
#include "penstock/captions/emoji_clips.h"
#include "penstock/report/text/table.h"
#include "penstock/util/error.h"
#include "penstock/util/text/plural.h"

namespace penstock::tool {

namespace {

constexpr const char* kEmoji = "emoji";

struct CaptionOptions : CommonOptions {
  std::string from;
  captions::CaptionOutput output;
  text::SplitShares shares = {.valid = 0.05, .test = 0.05};
  std::optional<int64_t> frames;
  int side = 32;
  std::optional<int64_t> clips;
  std::optional<int64_t> pictures;
  std::string captions;
};

captions::CaptionSource source_of(const CaptionOptions& options) {
  if (options.from == kEmoji) {
    if (!options.captions.empty())
      throw ConfigError("--captions names the captions of a folder: clips of emoji make their own");
    captions::EmojiRequest request{.shares = options.shares, .names = {}};
    request.clips = options.clips.value_or(request.clips);
    request.pictures = options.pictures.value_or(request.pictures);
    request.size = {.frames = options.frames.value_or(request.size.frames), .side = options.side};
    return captions::emoji_clips(request);
  }
  if (options.clips || options.pictures)
    throw ConfigError("--clips and --pictures are for --from emoji: a folder has clips of its own");
  captions::FolderRequest request{
      .folder = options.from, .captions = options.captions, .side = options.side};
  request.frames = options.frames.value_or(request.frames);
  request.shares = options.shares;
  return captions::captioned_folder(request);
}

std::string captions_text(const captions::PreparedCaptions& made, const CaptionOptions& options,
                          const captions::CaptionSource& source) {
  const std::string folder = options.output.output.string();
  std::string result =
      fmt::format("{}: captions of clips, {} of {} numbers, vocabulary of {}\n", folder,
                  plural(source.frames, "frame"), source.numbers, plural(made.vocabulary, "word"));
  report::Table table({{"part", report::Align::Left},
                       {"clips"},
                       {"captions"},
                       {"words"},
                       {"unknown"},
                       {"longest"}});
  for (size_t p = 0; p < text::kParts; ++p) {
    const captions::CaptionCounts& part = made.parts[p];
    if (part.clips == 0) continue;
    table.add({std::string(text::kPartNames[p]), fmt::format("{}", part.clips),
               fmt::format("{}", part.captions), fmt::format("{}", part.words.words),
               fmt::format("{}", part.words.unknown), fmt::format("{}", part.words.longest)});
  }
  result += table.text();
  result += fmt::format(
      "of the test's captions, {:.1f} % are in train, too{}\n", 100 * made.captions_recur,
      source.pairs_recur < 0
          ? ""
          : fmt::format("; of its pairs of pictures {:.1f} %", 100 * source.pairs_recur));
  for (const text::Origin& origin : source.origins)
    result += fmt::format("from {}{}{}; licence: {}\n", origin.name,
                          origin.version.empty() ? "" : " ", origin.version, origin.licence);
  for (const std::string& note : made.notes) result += fmt::format("note: {}\n", note);
  return result + fmt::format("next: penstock train --model s2vt --data {} --metric meteor{}\n",
                              folder,
                              source.kind == captions::FrameKind::Pixels ? " --depth 3" : "");
}

int run_captions(CaptionOptions& options) {
  options.shares.seed = options.seed;
  options.output.seed = options.seed;
  text::check_token_folder(options.output.output);
  const captions::CaptionSource source = source_of(options);
  const captions::PreparedCaptions made = captions::write_captions(source, options.output);
  if (options.json) {
    Json json = made.manifest;
    json["output"] = options.output.output.string();
    json["notes"] = made.notes;
    write_output("", json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    write_output("", captions_text(made, options, source));
  }
  return kExitYes;
}

}  // namespace

Command captions_command(CLI::App& parent, const std::string& typed) {
  auto options = std::make_shared<CaptionOptions>();
  options->output.command = typed;
  CLI::App* app = parent.add_subcommand("captions", "Clips and what they show, in words");
  app->add_option(
         "--from", options->from,
         "emoji (clips of Debian's fonts-noto-color-emoji, names of unicode-cldr-core); or "
         "a folder of videos or of features (.npy) with captions.txt or captions.csv")
      ->required();
  app->add_option("-o,--output", options->output.output,
                  "Folder to write: new, empty, or one of an earlier run")
      ->required();
  app->add_option("--frames", options->frames,
                  "Frames of a clip (default: 12 of emoji, 16 of a folder's, evenly spread)");
  app->add_option("--side", options->side, "Width and height of a frame in pixels")
      ->capture_default_str();
  app->add_option("--clips", options->clips, "Clips of emoji (default: 4000)");
  app->add_option("--pictures", options->pictures, "Kinds of emoji (default: 40)");
  app->add_option("--captions", options->captions, "The folder's captions, if they lie elsewhere");
  app->add_option("--vocabulary", options->output.vocabulary, "Words at most; others are unknown")
      ->capture_default_str();
  app->add_option("--valid-share", options->shares.valid, "Share of the clips for validation")
      ->capture_default_str();
  app->add_option("--test-share", options->shares.test, "Share of the clips for the test")
      ->capture_default_str();
  add_common(*app, *options);
  return {app, [options]() { return run_captions(*options); }};
}

}  // namespace penstock::tool
