// ResNet-18 and ResNet-50 (He, Zhang, Ren, Sun 2016) as torchvision defines them: the stride of a
// bottleneck is in its 3x3 convolution.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "penstock/model/builder.h"
#include "penstock/model/zoo/architectures.h"

namespace penstock::model::detail {
namespace {

/// A convolution without bias and its batch normalisation.
struct Unit {
  int64_t channels;
  int64_t kernel;
  int64_t stride = 1;
};

class ResNet {
 public:
  explicit ResNet(const ModelSpec& spec) : net_(spec.name), spec_(spec) {}

  /// `expansion`: output channels of a block over its width; 1 makes basic blocks, 4 bottlenecks.
  Model build(const std::array<int64_t, 4>& blocks, int64_t expansion) {
    Value x = net_.input(spec_.input_shape);
    x = net_.relu(conv_bn(x, {spec_.width, 7, 2}, "conv1", "bn1"), "relu");
    x = net_.max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1, .name = "maxpool"});
    for (int group = 0; group < 4; ++group) {
      for (int64_t i = 0; i < blocks[static_cast<size_t>(group)]; ++i) {
        const int64_t stride = group > 0 && i == 0 ? 2 : 1;
        x = block(x, spec_.width << group, stride, expansion,
                  fmt::format("layer{}.{}", group + 1, i));
      }
    }
    x = net_.flatten(net_.adaptive_avg_pool2d(x, 1, "avgpool"), "flatten");
    return net_.build(net_.linear(x, {.features = spec_.classes, .name = "fc"}));
  }

 private:
  Value conv_bn(const Value& x, const Unit& unit, const std::string& conv_name,
                const std::string& norm_name) {
    const auto fan_out = static_cast<double>(unit.channels * unit.kernel * unit.kernel);
    const Value y = net_.conv2d(x, {.channels = unit.channels,
                                    .kernel = unit.kernel,
                                    .stride = unit.stride,
                                    .padding = unit.kernel / 2,
                                    .bias = false,
                                    .name = conv_name,
                                    .weight_init = Init::normal(std::sqrt(2 / fan_out))});
    return net_.batch_norm2d(y, {.name = norm_name});
  }

  Value block(const Value& x, int64_t width, int64_t stride, int64_t expansion,
              const std::string& prefix) {
    const std::vector<Unit> units =
        expansion == 1 ? std::vector<Unit>{{width, 3, stride}, {width, 3}}
                       : std::vector<Unit>{{width, 1}, {width, 3, stride}, {width * expansion, 1}};
    Value y = x;
    for (size_t i = 1; i <= units.size(); ++i) {
      y = conv_bn(y, units[i - 1], fmt::format("{}.conv{}", prefix, i),
                  fmt::format("{}.bn{}", prefix, i));
      if (i < units.size()) y = net_.relu(y, fmt::format("{}.relu{}", prefix, i));
    }
    Value skip = x;
    if (y.shape != x.shape)
      skip = conv_bn(x, {width * expansion, 1, stride}, prefix + ".downsample.0",
                     prefix + ".downsample.1");
    return net_.relu(net_.add(y, skip, prefix + ".add"), prefix + ".relu");
  }

  ModelBuilder net_;
  const ModelSpec& spec_;
};

}  // namespace

/// `spec.depth`: the blocks of each group, 2 in ResNet-18.
Model make_resnet18(const ModelSpec& spec) {
  const int64_t blocks = spec.depth;
  return ResNet(spec).build({blocks, blocks, blocks, blocks}, 1);
}
Model make_resnet50(const ModelSpec& spec) { return ResNet(spec).build({3, 4, 6, 3}, 4); }

}  // namespace penstock::model::detail
