#include "penstock/model/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "penstock/model/shapes.h"
#include "penstock/model/zoo/architectures.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::model {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxDepth = 10'000;
constexpr int64_t kMaxKernel = 255;

/// What a sample is.
enum class Takes : uint8_t { Numbers, Pictures, Tokens, SentencePairs, CaptionedVideos };

/// Values of the options that a model has; 0 or nothing: it does not have that option.
struct OwnOptions {
  int64_t width = 0;
  int64_t depth = 0;
  int64_t kernel = 0;
  int64_t heads = 0;
  int64_t embedding = 0;
  std::optional<double> dropout = {};
  bool per_pixel = false;    ///< whether there is such a form
  bool untied = false;       ///< likewise
  bool takes_depth = false;  ///< whether a depth may be chosen where its own value is 0
};

struct Architecture {
  ZooEntry entry;
  Model (*make)(const ModelSpec&);
  Takes takes = Takes::Pictures;
  OwnOptions own = {};
};

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {
      {{"mlp", "perceptron with hidden layers of one width (width 1024, depth 3)", {1, 28, 28}, 10},
       detail::make_mlp,
       Takes::Numbers,
       {.width = 1024, .depth = 3}},
      {{"tied_mlp",
        "autoencoder with tied, transposed weights and a classifier after it (width 1024, depth "
        "3)",
        {1, 28, 28},
        10},
       detail::make_tied_mlp,
       Takes::Numbers,
       {.width = 1024, .depth = 3}},
      {{"lenet5", "LeNet-5 for 28x28 images", {1, 28, 28}, 10}, detail::make_lenet5},
      {{"vgg_small", "six convolutions for 32x32 images, no normalisation", {1, 32, 32}, 10},
       detail::make_vgg_small},
      {{"alexnet", "AlexNet (one tower) for ImageNet", {3, 224, 224}, 1000}, detail::make_alexnet},
      {{"vgg16", "VGG-16 for ImageNet", {3, 224, 224}, 1000}, detail::make_vgg16},
      {{"resnet18",
        "ResNet-18 for ImageNet, basic blocks (width 64, depth 2)",
        {3, 224, 224},
        1000},
       detail::make_resnet18,
       Takes::Pictures,
       {.width = 64, .depth = 2}},
      {{"resnet50", "ResNet-50 for ImageNet, bottleneck blocks (width 64)", {3, 224, 224}, 1000},
       detail::make_resnet50,
       Takes::Pictures,
       {.width = 64}},
      {{"inception_v3", "Inception-v3 for ImageNet, with its auxiliary head", {3, 299, 299}, 1000},
       detail::make_inception_v3},
      {{"partime",
        "convolutions of one width without downscaling, for streams (width 16, depth 10, kernel 5)",
        {3, 32, 32},
        10},
       detail::make_partime,
       Takes::Pictures,
       {.width = 16, .depth = 10, .kernel = 5, .per_pixel = true}},
      {{"gpt", "GPT-2's transformer, small, for bytes (width 256, depth 4, heads 4)", {128}, 256},
       detail::make_gpt,
       Takes::Tokens,
       {.width = 256, .depth = 4, .heads = 4, .dropout = 0, .untied = true}},
      {{"awd_lm",
        "AWD-LSTM for the Penn Treebank (width 1150, depth 3, embedding 400, dropout 0.4)",
        {70},
        10'000},
       detail::make_awd_lm,
       Takes::Tokens,
       {.width = 1150, .depth = 3, .embedding = 400, .dropout = 0.4, .untied = true}},
      {{"gnmt8",
        "GNMT for translation, 4 + 4 LSTMs and attention (width 1024, depth 4, dropout 0.2)",
        {50, 50},
        32'320},
       detail::make_gnmt,
       Takes::SentencePairs,
       {.width = 1024, .depth = 4, .dropout = 0.2}},
      {{"gnmt16", "GNMT with 8 + 8 LSTMs (width 1024, depth 8, dropout 0.2)", {50, 50}, 32'320},
       detail::make_gnmt,
       Takes::SentencePairs,
       {.width = 1024, .depth = 8, .dropout = 0.2}},
      {{"s2vt",
        "two LSTMs that see a video's frames and caption it (width 1000, embedding 500, depth 0)",
        {80, 4096, 20},
        12'594,
        /*takes_clips=*/true},
       detail::make_s2vt,
       Takes::CaptionedVideos,
       {.width = 1000, .embedding = 500, .takes_depth = true}},
  };
  return all;
}

const Architecture& find_architecture(const std::string& name) {
  std::vector<std::string> names;
  for (const Architecture& architecture : architectures()) {
    if (architecture.entry.name == name) return architecture;
    names.push_back(architecture.entry.name);
  }
  throw ConfigError(fmt::format("unknown model '{}', expected one of: {}", printable(name),
                                fmt::join(names, ", ")));
}

/// `value`, or the model's own where the user left 0. An own value of 0: it has no such option.
int64_t chosen(int64_t value, int64_t own, int64_t limit, const char* option) {
  if (value == 0) return own;
  if (own == 0) throw ConfigError(fmt::format("it has no {} option", option));
  detail::check_range(value, 1, limit, option);
  return value;
}

void check_sample(const ModelSpec& spec, Takes takes) {
  detail::checked_elements(spec.input_shape, "input_shape");
  const size_t dimensions = spec.input_shape.size();
  if (takes == Takes::Pictures && dimensions != 3) {
    throw ConfigError(fmt::format("input_shape must be [channels, height, width], found {}",
                                  detail::shape_text(spec.input_shape)));
  }
  if (takes == Takes::CaptionedVideos && dimensions != 3) {
    throw ConfigError(
        fmt::format("input_shape must be [frames, numbers of a frame, words], found {}",
                    detail::shape_text(spec.input_shape)));
  }
  if (takes == Takes::SentencePairs && dimensions != 2) {
    throw ConfigError(
        fmt::format("input_shape must be [tokens of the source, tokens of the target], found {}",
                    detail::shape_text(spec.input_shape)));
  }
  if (takes == Takes::Tokens && dimensions != 1) {
    throw ConfigError(fmt::format("input_shape must be [tokens], found {}",
                                  detail::shape_text(spec.input_shape)));
  }
}

ModelSpec complete(const ModelSpec& spec, const Architecture& architecture) {
  const OwnOptions& own = architecture.own;
  ModelSpec full = spec;
  if (full.input_shape.empty()) full.input_shape = architecture.entry.input_shape;
  full.classes = chosen(spec.classes, architecture.entry.classes, kMaxWidth, "classes");
  full.width = chosen(spec.width, own.width, kMaxWidth, "width");
  full.depth = own.takes_depth ? spec.depth : chosen(spec.depth, own.depth, kMaxDepth, "depth");
  full.kernel = chosen(spec.kernel, own.kernel, kMaxKernel, "kernel");
  full.heads = chosen(spec.heads, own.heads, kMaxWidth, "heads");
  full.embedding = chosen(spec.embedding, own.embedding, kMaxWidth, "embedding");
  if (full.kernel != 0 && full.kernel % 2 == 0) {
    throw ConfigError(
        fmt::format("kernel must be odd, so that pictures keep their size, found {}", full.kernel));
  }
  if (spec.dropout && !own.dropout) throw ConfigError("it has no dropout option");
  if (!spec.dropout) full.dropout = own.dropout;
  if (full.dropout) detail::check_probability(*full.dropout);
  if (spec.per_pixel && !own.per_pixel) {
    throw ConfigError(
        "it has no form with an output for each pixel, as this task asks for; the task 'label' "
        "asks for one answer for each picture");
  }
  if (spec.untied && !own.untied) throw ConfigError("it has no form with an untied head");
  check_sample(full, architecture.takes);
  return full;
}

std::string describe(const ModelSpec& spec) {
  std::string text =
      fmt::format("input_shape {}, classes {}", detail::shape_text(spec.input_shape), spec.classes);
  const std::pair<const char*, int64_t> sizes[] = {{"width", spec.width},
                                                   {"depth", spec.depth},
                                                   {"kernel", spec.kernel},
                                                   {"heads", spec.heads},
                                                   {"embedding", spec.embedding}};
  for (const auto& [name, size] : sizes)
    if (size != 0) text += fmt::format(", {} {}", name, size);
  if (spec.untied) text += ", untied";
  return text;
}

}  // namespace

const std::vector<ZooEntry>& zoo() {
  static const std::vector<ZooEntry> entries = [] {
    std::vector<ZooEntry> list;
    for (const Architecture& architecture : architectures()) list.push_back(architecture.entry);
    return list;
  }();
  return entries;
}

Model make_model(const ModelSpec& spec) {
  const Architecture& architecture = find_architecture(spec.name);
  ModelSpec full;
  try {
    full = complete(spec, architecture);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("model '{}': {}", spec.name, error.what()));
  }
  try {
    return architecture.make(full);
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("model '{}' with {}: {}", spec.name, describe(full), error.what()));
  }
}

}  // namespace penstock::model
