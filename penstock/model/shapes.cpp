#include "penstock/model/shapes.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

bool is_identifier(const std::string& name) {
  return !name.empty() && name.size() <= 100 &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// Numbers in the tensors of `specs`; `names` collects the names so far.
int64_t check_specs(const std::vector<ParameterSpec>& specs, const std::string& layer,
                    std::set<std::string>& names) {
  int64_t total = 0;
  for (const ParameterSpec& spec : specs) {
    if (!is_identifier(spec.name)) {
      throw ConfigError(fmt::format(
          "layer '{}': parameter name '{}' should be letters, digits and '_'", layer, spec.name));
    }
    if (!names.insert(spec.name).second)
      throw ConfigError(
          fmt::format("layer '{}': two parameters are called '{}'", layer, spec.name));
    total +=
        checked_elements(spec.shape, fmt::format("layer '{}': parameter '{}'", layer, spec.name));
    if (total > kMaxElements)
      throw ConfigError(fmt::format("layer '{}': more than 2^40 numbers in its parameters", layer));
  }
  return total;
}

std::vector<Shape> raw_output_shapes(const Layer& layer, const std::string& name,
                                     const std::vector<Shape>& inputs) {
  const auto failure = [&](const std::string& why) {
    return ConfigError(fmt::format("layer '{}' ({}): {}", name, layer.kind(), why));
  };
  try {
    return layer.output_shapes(inputs);
  } catch (const InternalError&) {
    throw;
  } catch (const c10::Error& error) {
    throw failure(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw failure(error.what());
  }
}

}  // namespace

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t checked_elements(const Shape& shape, const std::string& what) {
  if (shape.size() > 16)
    throw ConfigError(fmt::format("{}: {} dimensions, expected at most 16", what, shape.size()));
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 1)
      throw ConfigError(
          fmt::format("{}: sizes must be at least 1, found {}", what, shape_text(shape)));
    elements = saturating_mul(elements, size);
  }
  if (elements > kMaxElements)
    throw ConfigError(fmt::format("{}: {} is more than 2^40 numbers", what, shape_text(shape)));
  return elements;
}

void check_range(int64_t value, int64_t low, int64_t high, const char* what) {
  if (value < low || value > high)
    throw ConfigError(
        fmt::format("{} must be between {} and {}, found {}", what, low, high, value));
}

void check_probability(double value) {
  if (!(value >= 0 && value < 1)) {
    throw ConfigError(
        fmt::format("the probability of dropout must be at least 0 and below 1, found {}", value));
  }
}

void expect_inputs(const std::vector<Shape>& inputs, size_t count) {
  if (inputs.size() != count)
    throw ConfigError(fmt::format("expected {} input(s), found {}", count, inputs.size()));
}

const Shape& expect_image(const std::vector<Shape>& inputs) {
  expect_inputs(inputs, 1);
  if (inputs[0].size() != 3) {
    throw ConfigError(fmt::format("expected an input of shape [channels, height, width], found {}",
                                  shape_text(inputs[0])));
  }
  return inputs[0];
}

int64_t window_positions(int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  const int64_t room = size + 2 * padding - kernel;
  if (room < 0)
    throw ConfigError(fmt::format("a window of {} does not fit into an input of {} with padding {}",
                                  kernel, size, padding));
  return room / stride + 1;
}

std::vector<Shape> infer_shapes(const Layer& layer, const std::string& name,
                                const std::vector<Shape>& inputs) {
  std::vector<Shape> shapes = raw_output_shapes(layer, name, inputs);
  if (static_cast<int>(shapes.size()) != layer.num_outputs()) {
    throw ConfigError(fmt::format("layer '{}' ({}): {} output(s) where {} were declared", name,
                                  layer.kind(), shapes.size(), layer.num_outputs()));
  }
  for (const Shape& shape : shapes)
    checked_elements(shape, fmt::format("layer '{}' ({}): output", name, layer.kind()));
  return shapes;
}

int64_t checked_parameter_count(const Layer& layer, const std::string& name) {
  std::set<std::string> names;
  const int64_t count = check_specs(layer.parameters(), name, names);
  check_specs(layer.buffers(), name, names);
  return count;
}

std::vector<profile::WeightMatrix> weight_matrices(const Layer& layer) {
  std::vector<profile::WeightMatrix> matrices;
  for (const ParameterSpec& spec : layer.parameters()) {
    if (spec.shape.size() < 2) continue;
    profile::WeightMatrix matrix{.rows = spec.shape.front(), .columns = 1};
    for (size_t d = 1; d < spec.shape.size(); ++d)
      matrix.columns = saturating_mul(matrix.columns, spec.shape[d]);
    matrices.push_back(matrix);
  }
  return matrices;
}

}  // namespace penstock::model::detail
