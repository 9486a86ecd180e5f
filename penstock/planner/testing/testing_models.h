// Large models with parallel branches, for the planner's tests and benchmarks.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "penstock/profile/profile.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::planner::testing_models {

/// Builds a convolutional network layer by layer; costs by a roofline of a V100 in float32: 9
/// TFLOP/s, 750 GB/s, 5 us per kernel.
class ConvNet {
 public:
  explicit ConvNet(int64_t batch) { profile_.batch_size = batch; }

  struct Tensor {
    int layer = -1;  ///< -1: the model's input
    int64_t channels = 0;
    int64_t height = 0;
    int64_t width = 0;
  };
  struct Window {
    int64_t height = 1;
    int64_t width = 1;
    int64_t stride = 1;
    bool padded = true;  ///< keeps the size, up to the stride
  };

  Tensor conv_bn_relu(const std::string& name, const Tensor& in, int64_t channels, Window window) {
    Tensor out = resized(in, window);
    out.channels = channels;
    const int64_t weights = in.channels * channels * window.height * window.width;
    const double flops =
        2.0 * static_cast<double>(weights * out.height * out.width * profile_.batch_size);
    out = add(name + ".conv", "conv2d", {in}, out, flops, bytes(in) + bytes(out), weights * 4);
    out = add(name + ".bn", "batch_norm", {out}, out, 0, 3 * bytes(out), channels * 8);
    return add(name + ".relu", "relu", {out}, out, 0, 2 * bytes(out), 0);
  }
  Tensor pool(const std::string& name, const Tensor& in, Window window) {
    const Tensor out = resized(in, window);
    return add(name, "pool", {in}, out, 0, bytes(in) + bytes(out), 0);
  }
  Tensor concat(const std::string& name, const std::vector<Tensor>& inputs) {
    Tensor out = inputs.front();
    out.channels = 0;
    for (const Tensor& input : inputs) out.channels += input.channels;
    return add(name, "concat", inputs, out, 0, 2 * bytes(out), 0);
  }
  Tensor linear(const std::string& name, const Tensor& in, int64_t features) {
    const int64_t weights = in.channels * in.height * in.width * features;
    return add(name, "linear", {in}, {-1, features, 1, 1},
               2.0 * static_cast<double>(weights * profile_.batch_size), weights * 4, weights * 4);
  }
  Tensor reshape(const std::string& name, const Tensor& in) {
    return add(name, "reshape", {in}, {-1, in.channels * in.height * in.width, 1, 1}, 0, 0, 0);
  }

  profile::Profile finish(const std::string& model, const std::vector<Tensor>& outputs) {
    std::vector<graph::ValueRef> values;
    for (const Tensor& output : outputs) values.push_back({LayerId{output.layer}, 0});
    profile_.graph = graph::ModelGraph::build(1, std::move(nodes_), std::move(values));
    profile_.model = model;
    profile_.device = "V100, estimated";
    profile_.source = "analytic";
    return std::move(profile_);
  }

 private:
  int64_t bytes(const Tensor& tensor) const {
    return 4 * profile_.batch_size * tensor.channels * tensor.height * tensor.width;
  }

  static Tensor resized(const Tensor& in, const Window& window) {
    const auto size = [&](int64_t before, int64_t kernel) {
      return window.padded ? (before + window.stride - 1) / window.stride
                           : (before - kernel) / window.stride + 1;
    };
    return {-1, in.channels, size(in.height, window.height), size(in.width, window.width)};
  }

  Tensor add(const std::string& name, const std::string& kind, const std::vector<Tensor>& inputs,
             Tensor out, double flops, int64_t moved_bytes, int64_t weight_bytes) {
    graph::LayerNode node{.name = name, .kind = kind, .inputs = {}, .num_outputs = 1};
    for (const Tensor& input : inputs) {
      node.inputs.push_back(input.layer < 0 ? graph::ValueRef::model_input(0)
                                            : graph::ValueRef{LayerId{input.layer}, 0});
    }
    const double forward_ns = 5'000 + std::max(flops / 9e3, static_cast<double>(moved_bytes) / 750);
    out.layer = static_cast<int>(nodes_.size());
    nodes_.push_back(std::move(node));
    profile_.costs.push_back({.forward_ns = std::llround(forward_ns),
                              .backward_ns = std::llround(2 * forward_ns),
                              .output_bytes = {bytes(out)},
                              .weight_bytes = weight_bytes,
                              .stash_bytes = bytes(out)});
    return out;
  }

  profile::Profile profile_;
  std::vector<graph::LayerNode> nodes_;
};

/// The blocks of Inception-v3 (Szegedy et al. 2016, as in torchvision), every convolution,
/// normalisation and activation a layer of its own.
class InceptionV3 {
 public:
  explicit InceptionV3(int64_t batch) : net_(batch) {}

  /// With the auxiliary classifier, as it is trained: 324 layers; without it 314.
  profile::Profile build(bool auxiliary) {
    Tensor x = stem();
    for (const int64_t pooled : {32, 64, 64}) x = block_a(x, pooled);
    x = reduction_a(x);
    for (const int64_t channels : {128, 160, 160, 192}) x = block_b(x, channels);
    std::vector<Tensor> outputs;
    if (auxiliary) outputs.push_back(classifier(x));
    x = reduction_b(x);
    for (int k = 0; k < 2; ++k) x = block_c(x);
    x = net_.pool("pool", x, {x.height, x.width, 1, false});
    x = net_.reshape("flatten", net_.reshape("dropout", x));
    outputs.push_back(net_.linear("fc", x, 1000));
    return net_.finish("inception_v3", outputs);
  }

 private:
  using Tensor = ConvNet::Tensor;

  Tensor stem() {
    Tensor x{-1, 3, 299, 299};
    x = net_.conv_bn_relu("stem.1", x, 32, {3, 3, 2, false});
    x = net_.conv_bn_relu("stem.2", x, 32, {3, 3, 1, false});
    x = net_.pool("stem.pool1", net_.conv_bn_relu("stem.3", x, 64, {3, 3}), {3, 3, 2, false});
    x = net_.conv_bn_relu("stem.5", net_.conv_bn_relu("stem.4", x, 80, {1, 1, 1, false}), 192,
                          {3, 3, 1, false});
    return net_.pool("stem.pool2", x, {3, 3, 2, false});
  }

  Tensor chain(const std::string& name, Tensor x,
               const std::vector<std::pair<int64_t, ConvNet::Window>>& convolutions) {
    for (size_t k = 0; k < convolutions.size(); ++k) {
      x = net_.conv_bn_relu(fmt::format("{}.{}", name, k), x, convolutions[k].first,
                            convolutions[k].second);
    }
    return x;
  }

  std::string next() { return fmt::format("block{}", blocks_++); }

  Tensor block_a(const Tensor& x, int64_t pooled) {
    const std::string name = next();
    return net_.concat(
        name + ".concat",
        {chain(name + ".1x1", x, {{64, {}}}), chain(name + ".5x5", x, {{48, {}}, {64, {5, 5}}}),
         chain(name + ".double", x, {{64, {}}, {96, {3, 3}}, {96, {3, 3}}}),
         chain(name + ".pooled", net_.pool(name + ".pool", x, {3, 3}), {{pooled, {}}})});
  }

  Tensor reduction_a(const Tensor& x) {
    const std::string name = next();
    return net_.concat(name + ".concat", {chain(name + ".3x3", x, {{384, {3, 3, 2, false}}}),
                                          chain(name + ".double", x,
                                                {{64, {}}, {96, {3, 3}}, {96, {3, 3, 2, false}}}),
                                          net_.pool(name + ".pool", x, {3, 3, 2, false})});
  }

  Tensor block_b(const Tensor& x, int64_t c) {
    const std::string name = next();
    return net_.concat(
        name + ".concat",
        {chain(name + ".1x1", x, {{192, {}}}),
         chain(name + ".7x7", x, {{c, {}}, {c, {1, 7}}, {192, {7, 1}}}),
         chain(name + ".double", x,
               {{c, {}}, {c, {7, 1}}, {c, {1, 7}}, {c, {7, 1}}, {192, {1, 7}}}),
         chain(name + ".pooled", net_.pool(name + ".pool", x, {3, 3}), {{192, {}}})});
  }

  Tensor reduction_b(const Tensor& x) {
    const std::string name = next();
    return net_.concat(name + ".concat",
                       {chain(name + ".3x3", x, {{192, {}}, {320, {3, 3, 2, false}}}),
                        chain(name + ".7x7", x,
                              {{192, {}}, {192, {1, 7}}, {192, {7, 1}}, {192, {3, 3, 2, false}}}),
                        net_.pool(name + ".pool", x, {3, 3, 2, false})});
  }

  // Two branches split once more and are joined before the others.
  Tensor block_c(const Tensor& x) {
    const std::string name = next();
    const auto split = [&](const std::string& branch, const Tensor& from) {
      return net_.concat(branch + ".concat", {chain(branch + ".wide", from, {{384, {1, 3}}}),
                                              chain(branch + ".high", from, {{384, {3, 1}}})});
    };
    return net_.concat(
        name + ".concat",
        {chain(name + ".1x1", x, {{320, {}}}),
         split(name + ".3x3", chain(name + ".3x3", x, {{384, {}}})),
         split(name + ".double", chain(name + ".double", x, {{448, {}}, {384, {3, 3}}})),
         chain(name + ".pooled", net_.pool(name + ".pool", x, {3, 3}), {{192, {}}})});
  }

  Tensor classifier(const Tensor& in) {
    Tensor x = net_.pool("aux.pool", in, {5, 5, 3, false});
    x = chain("aux", x, {{128, {}}, {768, {5, 5, 1, false}}});
    x = net_.reshape("aux.flatten", net_.pool("aux.pool2", x, {x.height, x.width, 1, false}));
    return net_.linear("aux.fc", x, 1000);
  }

  ConvNet net_;
  int blocks_ = 0;
};

inline profile::Profile inception_v3(int64_t batch = 64, bool auxiliary = true) {
  return InceptionV3(batch).build(auxiliary);
}

/// `branches` chains of equal length side by side between a source and a sink, `layers` layers in
/// all, some of which also read a layer of another branch that is less deep. Times, weights and
/// tensors of a convolutional network on a V100, spread over a decade.
inline profile::Profile branched(Rng& rng, int layers, int branches, double cross_edges) {
  std::vector<graph::LayerNode> nodes = {{.name = "source",
                                          .kind = "test",
                                          .inputs = {graph::ValueRef::model_input(0)},
                                          .num_outputs = 1}};
  const auto spread = [&rng](double least) {
    return static_cast<int64_t>(least * std::pow(10.0, rng.uniform()));
  };
  for (int k = 0; k + 2 < layers; ++k) {
    const int before = k < branches ? 0 : k + 1 - branches;
    graph::LayerNode node{.name = fmt::format("b{}.{}", k % branches, k / branches),
                          .kind = "test",
                          .inputs = {{LayerId{before}, 0}},
                          .num_outputs = 1};
    const int shallower = k / branches * branches;  // the layers of smaller depth, and the source
    if (rng.uniform() < cross_edges && shallower > 0) {
      const int other = 1 + static_cast<int>(rng.below(static_cast<uint64_t>(shallower)));
      if (other != before) node.inputs.push_back({LayerId{other}, 0});
    }
    nodes.push_back(std::move(node));
  }
  graph::LayerNode sink{.name = "sink", .kind = "test", .inputs = {}, .num_outputs = 1};
  for (int l = std::max(1, layers - 1 - branches); l < layers - 1; ++l)
    sink.inputs.push_back({LayerId{l}, 0});
  nodes.push_back(std::move(sink));
  profile::Profile profile;
  for (int l = 0; l < layers; ++l) {
    const int64_t forward_ns = spread(100'000);
    const int64_t output_bytes = spread(500'000);
    profile.costs.push_back({.forward_ns = forward_ns,
                             .backward_ns = 2 * forward_ns,
                             .output_bytes = {output_bytes},
                             .weight_bytes = spread(100'000),
                             .stash_bytes = output_bytes});
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers - 1}, 0}});
  profile.model = fmt::format("branched_{}x{}", branches, layers);
  profile.source = "test";
  profile.batch_size = 64;
  return profile;
}

}  // namespace penstock::planner::testing_models
