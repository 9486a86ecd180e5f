// AlexNet (Krizhevsky 2014, one tower) and VGG-16 (Simonyan and Zisserman 2015, configuration D),
// as torchvision defines them.
#include <fmt/format.h>

#include <cmath>

#include "penstock/model/builder.h"
#include "penstock/model/zoo/architectures.h"

namespace penstock::model::detail {
namespace {

/// Names layers "features.0", "features.1", ... as torch.nn.Sequential does.
class Names {
 public:
  explicit Names(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string next() { return fmt::format("{}.{}", prefix_, next_++); }

 private:
  std::string prefix_;
  int next_ = 0;
};

/// He et al. (2015), for the spread of gradients: the deviation is sqrt(2 / fan out).
Init he_fan_out(int64_t channels, int64_t kernel) {
  return Init::normal(std::sqrt(2.0 / static_cast<double>(channels * kernel * kernel)));
}

}  // namespace

Model make_alexnet(const ModelSpec& spec) {
  ModelBuilder net(spec.name);
  Names features("features");
  Value x = net.input(spec.input_shape);
  const auto conv = [&](int64_t channels, int64_t kernel, int64_t stride, int64_t padding) {
    x = net.conv2d(x, {.channels = channels,
                       .kernel = kernel,
                       .stride = stride,
                       .padding = padding,
                       .name = features.next()});
    x = net.relu(x, features.next());
  };
  const auto pool = [&] {
    x = net.max_pool2d(x, {.kernel = 3, .stride = 2, .name = features.next()});
  };
  conv(64, 11, 4, 2);
  pool();
  conv(192, 5, 1, 2);
  pool();
  conv(384, 3, 1, 1);
  conv(256, 3, 1, 1);
  conv(256, 3, 1, 1);
  pool();
  x = net.flatten(net.adaptive_avg_pool2d(x, 6, "avgpool"), "flatten");

  Names classifier("classifier");
  for (int i = 0; i < 2; ++i) {
    x = net.dropout(x, 0.5, classifier.next());
    x = net.linear(x, {.features = 4096, .name = classifier.next()});
    x = net.relu(x, classifier.next());
  }
  return net.build(net.linear(x, {.features = spec.classes, .name = classifier.next()}));
}

Model make_vgg16(const ModelSpec& spec) {
  struct Block {
    int convolutions;
    int64_t channels;
  };
  ModelBuilder net(spec.name);
  Names features("features");
  Value x = net.input(spec.input_shape);
  for (const Block& block :
       {Block{2, 64}, Block{2, 128}, Block{3, 256}, Block{3, 512}, Block{3, 512}}) {
    for (int i = 0; i < block.convolutions; ++i) {
      x = net.conv2d(x, {.channels = block.channels,
                         .kernel = 3,
                         .padding = 1,
                         .name = features.next(),
                         .weight_init = he_fan_out(block.channels, 3)});
      x = net.relu(x, features.next());
    }
    x = net.max_pool2d(x, {.kernel = 2, .name = features.next()});
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, 7, "avgpool"), "flatten");

  Names classifier("classifier");
  for (int i = 0; i < 2; ++i) {
    x = net.linear(
        x, {.features = 4096, .name = classifier.next(), .weight_init = Init::normal(0.01)});
    x = net.relu(x, classifier.next());
    x = net.dropout(x, 0.5, classifier.next());
  }
  return net.build(net.linear(
      x, {.features = spec.classes, .name = classifier.next(), .weight_init = Init::normal(0.01)}));
}

}  // namespace penstock::model::detail
