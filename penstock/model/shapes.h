// Checks on shapes, shared by the layers, the builder and Model. Every size that comes from outside
// is checked here before memory is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/profile/profile.h"

namespace penstock::model::detail {

/// More numbers than this in one tensor or one model are refused as a mistake.
inline constexpr int64_t kMaxElements = int64_t{1} << 40;
/// Limit for kernel sizes, strides, paddings and similar options, so that sums of them cannot
/// overflow.
inline constexpr int64_t kMaxExtent = int64_t{1} << 20;

/// "[3, 224, 224]"
std::string shape_text(const Shape& shape);
/// Numbers in a tensor of this shape. Throws ConfigError, naming `what`, when a size is below 1 or
/// there are more than kMaxElements.
int64_t checked_elements(const Shape& shape, const std::string& what);
/// Throws ConfigError naming `what` unless low <= value <= high.
void check_range(int64_t value, int64_t low, int64_t high, const char* what);
/// Throws ConfigError unless a number is left out with this probability of dropout: [0, 1).
void check_probability(double value);
/// Throws ConfigError unless there are `count` inputs.
void expect_inputs(const std::vector<Shape>& inputs, size_t count);
/// The single input, which must be [channels, height, width]. Throws ConfigError.
const Shape& expect_image(const std::vector<Shape>& inputs);
/// Positions of a window of `kernel` along `size` numbers padded on both sides. Throws ConfigError
/// naming the sizes when there is none.
int64_t window_positions(int64_t size, int64_t kernel, int64_t stride, int64_t padding);

/// layer.output_shapes() with every failure turned into a ConfigError that starts with the layer's
/// name, and the result checked.
std::vector<Shape> infer_shapes(const Layer& layer, const std::string& name,
                                const std::vector<Shape>& inputs);
/// Trainable numbers in the layer. Throws ConfigError naming the layer for a malformed parameter or
/// buffer.
int64_t checked_parameter_count(const Layer& layer, const std::string& name);
/// LayerCost::matrices of its parameters.
std::vector<profile::WeightMatrix> weight_matrices(const Layer& layer);

}  // namespace penstock::model::detail
