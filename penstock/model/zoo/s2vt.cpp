// S2VT (Venugopalan et al. 2015, section 3.1): two LSTMs see a video, then say what happens in it.
#include <fmt/format.h>

#include <cmath>

#include "penstock/model/layers/sequence_lengths.h"
#include "penstock/model/sequence_builder.h"
#include "penstock/model/shapes.h"
#include "penstock/model/zoo/architectures.h"
#include "penstock/util/error.h"

namespace penstock::model::detail {

namespace {

constexpr int64_t kColours = 3;
constexpr int64_t kFirstChannels = 16;

/// The paper's features come from another network, which is not trained. Of small pictures in
/// colour, `depth` convolutions make them: 16 channels, then twice as many, each with half of the
/// side, normalised over the micro-batch. Depth 0: the numbers are features.
Value frame_features(SequenceBuilder& net, const ModelSpec& spec, const Value& video) {
  if (spec.depth == 0) return video;
  Value x = net.frames_to_sheet(video, kColours, "frame_conv.sheet");
  for (int64_t i = 0; i < spec.depth; ++i) {
    const std::string name = fmt::format("frame_conv.{}", i);
    const int64_t channels = kFirstChannels << i;
    x = net.conv2d(x, {.channels = channels,
                       .kernel = 3,
                       .padding = 1,
                       .bias = false,
                       .name = name,
                       .weight_init = Init::normal(std::sqrt(2.0 / (9.0 * channels)))});
    x = net.batch_norm2d(x, {.name = name + ".norm"});
    x = net.max_pool2d(net.relu(x, name + ".relu"), {.kernel = 2, .name = name + ".pool"});
  }
  return net.sheet_to_frames(x, spec.input_shape[0], "frame_conv.frames");
}

void check_halves(const ModelSpec& spec) {
  constexpr int64_t kMostDepth = 8;
  check_range(spec.depth, 0, kMostDepth, "depth");
  int64_t side = 1;
  while (kColours * side * side < spec.input_shape[1]) ++side;
  if (spec.depth > 0 && kColours * side * side == spec.input_shape[1] &&
      side % (int64_t{1} << spec.depth) != 0)
    throw ConfigError(
        fmt::format("the side of a frame, {}, cannot be halved {} times", side, spec.depth));
}

}  // namespace

/// While frames come, the second LSTM reads no words; while words come, the first one no frames:
/// zeros instead.
Model make_s2vt(const ModelSpec& spec) {
  check_halves(spec);
  SequenceBuilder net(spec.name);
  const int64_t frames = spec.input_shape[0];
  const int64_t words = spec.input_shape[2];
  const Value video = net.features("frames", {frames, spec.input_shape[1]});
  const Value said = net.tokens("target", {words}, spec.classes);
  Value x = net.linear(frame_features(net, spec, video),
                       {.features = spec.embedding, .name = "frame_embed"});
  x = net.pad_places(x, {.behind = words, .name = "frame_embed.pad"});
  x = net.lstm(x, {.features = spec.width, .name = "lstm1"});
  Value word = net.embedding(said, {.values = spec.classes,
                                    .features = spec.embedding,
                                    .padding = kPadding,
                                    .name = "word_embed",
                                    .weight_init = Init::uniform(0.1)});
  word = net.pad_places(word, {.before = frames, .name = "word_embed.pad"});
  x = net.lstm(net.concat_features({x, word}, "lstm2.concat"),
               {.features = spec.width, .name = "lstm2"});
  x = net.cut_places(x, {.before = frames, .name = "lstm2.words"});
  return net.build(net.linear(x, {.features = spec.classes, .name = "predict"}));
}

}  // namespace penstock::model::detail
