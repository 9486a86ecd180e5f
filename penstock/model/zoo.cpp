#include "penstock/model/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/model/shapes.h"
#include "penstock/model/zoo/architectures.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::model {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxDepth = 10'000;
constexpr int64_t kMaxKernel = 255;

struct Architecture {
  ZooEntry entry;
  Model (*make)(const ModelSpec&);
  bool has_width_and_depth = false;
  bool is_dense = false;  ///< has a kernel, and a form with an output per pixel
};

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {
      {{"mlp", "perceptron with hidden layers of one width (width 1024, depth 3)", {1, 28, 28}, 10},
       detail::make_mlp,
       true},
      {{"tied_mlp",
        "autoencoder with tied, transposed weights and a classifier after it (width 1024, depth "
        "3)",
        {1, 28, 28},
        10},
       detail::make_tied_mlp,
       true},
      {{"lenet5", "LeNet-5 for 28x28 images", {1, 28, 28}, 10}, detail::make_lenet5},
      {{"vgg_small", "six convolutions for 32x32 images, no normalisation", {1, 32, 32}, 10},
       detail::make_vgg_small},
      {{"alexnet", "AlexNet (one tower) for ImageNet", {3, 224, 224}, 1000}, detail::make_alexnet},
      {{"vgg16", "VGG-16 for ImageNet", {3, 224, 224}, 1000}, detail::make_vgg16},
      {{"resnet18", "ResNet-18 for ImageNet, basic blocks", {3, 224, 224}, 1000},
       detail::make_resnet18},
      {{"resnet50", "ResNet-50 for ImageNet, bottleneck blocks", {3, 224, 224}, 1000},
       detail::make_resnet50},
      {{"partime",
        "convolutions of one width without downscaling, for streams (width 16, depth 10, kernel 5)",
        {3, 32, 32},
        10},
       detail::make_partime,
       true,
       true},
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

/// `value`, or `standard` where the user left 0.
int64_t chosen(int64_t value, int64_t standard, int64_t limit, const char* option) {
  if (value == 0) return standard;
  detail::check_range(value, 1, limit, option);
  return value;
}

void check_picture(const ModelSpec& spec) {
  if (spec.input_shape.size() == 3) return;
  throw ConfigError(fmt::format("input_shape must be [channels, height, width], found {}",
                                detail::shape_text(spec.input_shape)));
}

ModelSpec complete(const ModelSpec& spec, const Architecture& architecture) {
  ModelSpec full = spec;
  if (full.input_shape.empty()) full.input_shape = architecture.entry.input_shape;
  detail::checked_elements(full.input_shape, "input_shape");
  full.classes = chosen(spec.classes, architecture.entry.classes, kMaxWidth, "classes");
  if (architecture.is_dense) {
    full.width = chosen(spec.width, 16, kMaxWidth, "width");
    full.depth = chosen(spec.depth, 10, kMaxDepth, "depth");
    full.kernel = chosen(spec.kernel, 5, kMaxKernel, "kernel");
    if (full.kernel % 2 == 0) {
      throw ConfigError(fmt::format(
          "kernel must be odd, so that pictures keep their size, found {}", full.kernel));
    }
    check_picture(full);
    return full;
  }
  if (spec.kernel != 0) throw ConfigError("it has no kernel option");
  if (spec.per_pixel) {
    throw ConfigError(
        "it has no form with an output for each pixel, as this task asks for; the task 'label' "
        "asks for one answer for each picture");
  }
  if (architecture.has_width_and_depth) {
    full.width = chosen(spec.width, 1024, kMaxWidth, "width");
    full.depth = chosen(spec.depth, 3, kMaxDepth, "depth");
    return full;
  }
  if (spec.width != 0 || spec.depth != 0)
    throw ConfigError(fmt::format("it has no {} option", spec.width != 0 ? "width" : "depth"));
  check_picture(full);
  return full;
}

std::string describe(const ModelSpec& spec) {
  std::string text =
      fmt::format("input_shape {}, classes {}", detail::shape_text(spec.input_shape), spec.classes);
  if (spec.width != 0) text += fmt::format(", width {}, depth {}", spec.width, spec.depth);
  if (spec.kernel != 0) text += fmt::format(", kernel {}", spec.kernel);
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
