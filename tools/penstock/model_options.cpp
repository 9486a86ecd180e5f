#include "tools/penstock/model_options.h"

#include <fmt/format.h>

#include <charconv>

#include "penstock/util/error.h"

namespace penstock::tool {

namespace {

model::Shape parse_shape(const std::string& text) {
  model::Shape shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1) break;
    shape.push_back(size);
    if (next == end) return shape;
    if (*next != 'x') break;
    at = next + 1;
  }
  throw ConfigError(fmt::format("--input: expected sizes such as 1x28x28, found '{}'", text));
}

}  // namespace

void add_model_options(CLI::App& app, ModelOptions& options) {
  std::string names;
  for (const auto& entry : model::zoo()) names += (names.empty() ? "" : ", ") + entry.name;
  app.add_option("--model", options.spec.name, "One of: " + names)->required();
  app.add_option("--width", options.spec.width, "mlp, tied_mlp: width of the hidden layers");
  app.add_option("--depth", options.spec.depth, "mlp, tied_mlp: number of hidden layers");
  app.add_option("--classes", options.spec.classes, "Number of classes (default: the model's own)");
  app.add_option("--input", options.input,
                 "Shape of one sample, e.g. 3x32x32 (default: the model's own)");
}

model::Model make_model(const ModelOptions& options) {
  model::ModelSpec spec = options.spec;
  if (!options.input.empty()) spec.input_shape = parse_shape(options.input);
  return model::make_model(spec);
}

}  // namespace penstock::tool
