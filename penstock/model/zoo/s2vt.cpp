// S2VT (Venugopalan et al. 2015, section 3.1): two LSTMs see a video, then say what happens in it.
#include "penstock/model/layers/sequence_lengths.h"
#include "penstock/model/sequence_builder.h"
#include "penstock/model/zoo/architectures.h"

namespace penstock::model::detail {

/// While frames come, the second LSTM reads no words; while words come, the first one no frames:
/// zeros instead.
Model make_s2vt(const ModelSpec& spec) {
  SequenceBuilder net(spec.name);
  const int64_t frames = spec.input_shape[0];
  const int64_t words = spec.input_shape[2];
  const Value video = net.features("frames", {frames, spec.input_shape[1]});
  const Value said = net.tokens("target", {words}, spec.classes);
  Value x = net.linear(video, {.features = spec.embedding, .name = "frame_embed"});
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
