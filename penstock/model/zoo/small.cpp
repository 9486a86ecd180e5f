// Networks for small images: mlp, tied_mlp, lenet5, vgg_small, partime.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/model/builder.h"
#include "penstock/model/zoo/architectures.h"

namespace penstock::model::detail {
namespace {

/// He et al. (2015): keeps the size of activations through layers with relu. PyTorch's default
/// shrinks them, and without normalisation the first hundreds of steps then learn almost nothing.
Init he_fan_in(int64_t fan_in) {
  return Init::normal(std::sqrt(2.0 / static_cast<double>(fan_in)));
}

}  // namespace

Model make_mlp(const ModelSpec& spec) {
  ModelBuilder net(spec.name);
  Value x = net.input(spec.input_shape);
  if (x.shape.size() > 1) x = net.flatten(x, "flatten");
  for (int64_t i = 1; i <= spec.depth; ++i) {
    x = net.linear(x, {.features = spec.width, .name = fmt::format("fc{}", i)});
    x = net.relu(x, fmt::format("relu{}", i));
  }
  return net.build(
      net.linear(x, {.features = spec.classes, .name = fmt::format("fc{}", spec.depth + 1)}));
}

/// An autoencoder whose decoder uses the encoder's weights transposed (as in Hinton and
/// Salakhutdinov, 2006, before fine-tuning unties them), and a classifier that reads the
/// reconstruction. With a cut between encode1 and decode1 the stages on both sides share weights; a
/// cut after flatten or before classify does not.
Model make_tied_mlp(const ModelSpec& spec) {
  ModelBuilder net(spec.name);
  Value x = net.input(spec.input_shape);
  if (x.shape.size() > 1) x = net.flatten(x, "flatten");
  std::vector<int64_t> widths = {x.shape[0]};
  for (int64_t i = 0; i < spec.depth; ++i)
    widths.push_back(std::max<int64_t>(1, spec.width >> std::min<int64_t>(i, 62)));
  for (size_t i = 1; i < widths.size(); ++i) {
    x = net.linear(x, {.features = widths[i],
                       .name = fmt::format("encode{}", i),
                       .weight_init = he_fan_in(widths[i - 1])});
    x = net.relu(x, fmt::format("relu_encode{}", i));
  }
  for (size_t i = widths.size() - 1; i > 0; --i) {
    const std::string name = fmt::format("decode{}", i);
    x = net.linear(x, {.features = widths[i - 1],
                       .name = name,
                       .weight_init = he_fan_in(widths[i]),
                       .transposed = true});
    net.tie(name, "weight", fmt::format("encode{}", i), "weight");
    x = net.relu(x, fmt::format("relu_decode{}", i));
  }
  return net.build(net.linear(x, {.features = spec.classes, .name = "classify"}));
}

/// LeCun, Bottou, Bengio, Haffner (1998), in its common form: fully connected second convolution,
/// softmax output.
Model make_lenet5(const ModelSpec& spec) {
  ModelBuilder net(spec.name);
  Value x = net.input(spec.input_shape);
  x = net.tanh(net.conv2d(x, {.channels = 6, .kernel = 5, .padding = 2, .name = "conv1"}), "tanh1");
  x = net.avg_pool2d(x, {.kernel = 2, .name = "pool1"});
  x = net.tanh(net.conv2d(x, {.channels = 16, .kernel = 5, .name = "conv2"}), "tanh2");
  x = net.flatten(net.avg_pool2d(x, {.kernel = 2, .name = "pool2"}), "flatten");
  x = net.tanh(net.linear(x, {.features = 120, .name = "fc1"}), "tanh3");
  x = net.tanh(net.linear(x, {.features = 84, .name = "fc2"}), "tanh4");
  return net.build(net.linear(x, {.features = spec.classes, .name = "fc3"}));
}

/// Three blocks of two convolutions, after Simonyan and Zisserman (2015), without normalisation or
/// dropout: a mini-batch may be cut into micro-batches without changing the result. The first block
/// is about half of the work, so two stages balance.
Model make_vgg_small(const ModelSpec& spec) {
  ModelBuilder net(spec.name);
  Value x = net.input(spec.input_shape);
  int block = 0;
  for (const int64_t channels : {32, 64, 128}) {
    ++block;
    for (const int i : {1, 2}) {
      x = net.conv2d(x, {.channels = channels,
                         .kernel = 3,
                         .padding = 1,
                         .name = fmt::format("conv{}_{}", block, i),
                         .weight_init = he_fan_in(x.shape[0] * 9)});
      x = net.relu(x, fmt::format("relu{}_{}", block, i));
    }
    x = net.max_pool2d(x, {.kernel = 2, .name = fmt::format("pool{}", block)});
  }
  x = net.flatten(x, "flatten");
  x = net.relu(
      net.linear(x, {.features = 256, .name = "fc1", .weight_init = he_fan_in(x.shape[0])}),
      "relu_fc1");
  return net.build(net.linear(x, {.features = spec.classes, .name = "fc2"}));
}

/// The convolutional networks of PARTIME's measurements (Meloni et al., ICMLA 2022): `depth`
/// convolutions of `width` features that keep the picture's size, the last one with an output per
/// class. Differs: rectifiers with He's initialisation between them, so that deep ones learn.
Model make_partime(const ModelSpec& spec) {
  ModelBuilder net(spec.name);
  Value x = net.input(spec.input_shape);
  for (int64_t i = 1; i <= spec.depth; ++i) {
    const bool is_last = i == spec.depth && spec.per_pixel;
    const int64_t fan_in = x.shape[0] * spec.kernel * spec.kernel;
    x = net.conv2d(x, {.channels = is_last ? spec.classes : spec.width,
                       .kernel = spec.kernel,
                       .padding = spec.kernel / 2,
                       .name = fmt::format("conv{}", i),
                       .weight_init = he_fan_in(fan_in)});
    if (!is_last) x = net.relu(x, fmt::format("relu{}", i));
  }
  if (spec.per_pixel) return net.build(x);
  x = net.flatten(net.adaptive_avg_pool2d(x, 1, "pool"), "flatten");
  return net.build(net.linear(x, {.features = spec.classes, .name = "classify"}));
}

}  // namespace penstock::model::detail
