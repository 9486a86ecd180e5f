// Inception-v3 (Szegedy et al. 2016) with its auxiliary head, as torchvision defines it.
#include <array>

#include "penstock/model/builder.h"
#include "penstock/model/zoo/architectures.h"

namespace penstock::model::detail {
namespace {

/// How much the auxiliary head's loss counts beside the other one.
constexpr double kAuxiliaryWeight = 0.4;

/// A convolution; one that is not square names its width.
struct WindowSizes {
  int64_t channels;
  int64_t kernel = 1;
  int64_t width = 0;  ///< 0: the kernel
  int64_t stride = 1;
  bool keeps_size = true;
  double deviation = 0.1;
};

class Inception {
 public:
  explicit Inception(const ModelSpec& spec) : net_(spec.name), spec_(spec) {}

  Model build() {
    Value x = net_.input(spec_.input_shape);
    x = unit(x, "Conv2d_1a_3x3", {.channels = 32, .kernel = 3, .stride = 2, .keeps_size = false});
    x = unit(x, "Conv2d_2a_3x3", {.channels = 32, .kernel = 3, .keeps_size = false});
    x = unit(x, "Conv2d_2b_3x3", {.channels = 64, .kernel = 3});
    x = net_.max_pool2d(x, {.kernel = 3, .stride = 2, .name = "maxpool1"});
    x = unit(x, "Conv2d_3b_1x1", {.channels = 80});
    x = unit(x, "Conv2d_4a_3x3", {.channels = 192, .kernel = 3, .keeps_size = false});
    x = net_.max_pool2d(x, {.kernel = 3, .stride = 2, .name = "maxpool2"});
    x = block_a(x, "Mixed_5b", 32);
    x = block_a(x, "Mixed_5c", 64);
    x = block_a(x, "Mixed_5d", 64);
    x = block_b(x, "Mixed_6a");
    x = block_c(x, "Mixed_6b", 128);
    x = block_c(x, "Mixed_6c", 160);
    x = block_c(x, "Mixed_6d", 160);
    x = block_c(x, "Mixed_6e", 192);
    const Value auxiliary = auxiliary_head(x);
    x = block_d(x, "Mixed_7a");
    x = block_e(x, "Mixed_7b");
    x = block_e(x, "Mixed_7c");
    x = net_.dropout(net_.adaptive_avg_pool2d(x, 1, "avgpool"), 0.5, "dropout");
    x = classifier(net_.flatten(x, "flatten"), "fc", 0.1);
    return net_.build(net_.with_auxiliary(x, {{auxiliary, kAuxiliaryWeight}}, "logits"));
  }

 private:
  /// A convolution without bias, its normalisation and a rectifier.
  Value unit(const Value& x, const std::string& name, const WindowSizes& sizes) {
    const int64_t width = sizes.width == 0 ? sizes.kernel : sizes.width;
    const Value y = net_.conv2d(x, {.channels = sizes.channels,
                                    .kernel = sizes.kernel,
                                    .stride = sizes.stride,
                                    .padding = sizes.keeps_size ? sizes.kernel / 2 : 0,
                                    .bias = false,
                                    .name = name + ".conv",
                                    .weight_init = Init::normal(sizes.deviation),
                                    .kernel_width = width,
                                    .padding_width = sizes.keeps_size ? width / 2 : 0});
    return net_.relu(net_.batch_norm2d(y, {.epsilon = 0.001, .name = name + ".bn"}),
                     name + ".relu");
  }

  Value pooled(const Value& x, const std::string& name, int64_t channels) {
    const Value y = net_.avg_pool2d(
        x, {.kernel = 3, .stride = 1, .padding = 1, .name = name + ".branch_pool.pool"});
    return unit(y, name + ".branch_pool", {.channels = channels});
  }

  Value block_a(const Value& x, const std::string& name, int64_t pool_channels) {
    const Value one = unit(x, name + ".branch1x1", {.channels = 64});
    Value five = unit(x, name + ".branch5x5_1", {.channels = 48});
    five = unit(five, name + ".branch5x5_2", {.channels = 64, .kernel = 5});
    Value three = unit(x, name + ".branch3x3dbl_1", {.channels = 64});
    three = unit(three, name + ".branch3x3dbl_2", {.channels = 96, .kernel = 3});
    three = unit(three, name + ".branch3x3dbl_3", {.channels = 96, .kernel = 3});
    return net_.concat({one, five, three, pooled(x, name, pool_channels)}, name + ".concat");
  }

  /// Halves the sizes.
  Value block_b(const Value& x, const std::string& name) {
    const WindowSizes last = {.channels = 384, .kernel = 3, .stride = 2, .keeps_size = false};
    const Value three = unit(x, name + ".branch3x3", last);
    Value twice = unit(x, name + ".branch3x3dbl_1", {.channels = 64});
    twice = unit(twice, name + ".branch3x3dbl_2", {.channels = 96, .kernel = 3});
    twice = unit(twice, name + ".branch3x3dbl_3",
                 {.channels = 96, .kernel = 3, .stride = 2, .keeps_size = false});
    return net_.concat({three, twice, halved(x, name)}, name + ".concat");
  }

  Value halved(const Value& x, const std::string& name) {
    return net_.max_pool2d(x, {.kernel = 3, .stride = 2, .name = name + ".branch_pool"});
  }

  Value block_c(const Value& x, const std::string& name, int64_t inner) {
    const auto wide = [](int64_t channels) { return WindowSizes{channels, 1, 7}; };
    const auto high = [](int64_t channels) { return WindowSizes{channels, 7, 1}; };
    const Value one = unit(x, name + ".branch1x1", {.channels = 192});
    Value seven = unit(x, name + ".branch7x7_1", {.channels = inner});
    seven = unit(seven, name + ".branch7x7_2", wide(inner));
    seven = unit(seven, name + ".branch7x7_3", high(192));
    Value twice = unit(x, name + ".branch7x7dbl_1", {.channels = inner});
    twice = unit(twice, name + ".branch7x7dbl_2", high(inner));
    twice = unit(twice, name + ".branch7x7dbl_3", wide(inner));
    twice = unit(twice, name + ".branch7x7dbl_4", high(inner));
    twice = unit(twice, name + ".branch7x7dbl_5", wide(192));
    return net_.concat({one, seven, twice, pooled(x, name, 192)}, name + ".concat");
  }

  /// Halves the sizes.
  Value block_d(const Value& x, const std::string& name) {
    Value three = unit(x, name + ".branch3x3_1", {.channels = 192});
    three = unit(three, name + ".branch3x3_2",
                 {.channels = 320, .kernel = 3, .stride = 2, .keeps_size = false});
    Value seven = unit(x, name + ".branch7x7x3_1", {.channels = 192});
    seven = unit(seven, name + ".branch7x7x3_2", {.channels = 192, .kernel = 1, .width = 7});
    seven = unit(seven, name + ".branch7x7x3_3", {.channels = 192, .kernel = 7, .width = 1});
    seven = unit(seven, name + ".branch7x7x3_4",
                 {.channels = 192, .kernel = 3, .stride = 2, .keeps_size = false});
    return net_.concat({three, seven, halved(x, name)}, name + ".concat");
  }

  Value block_e(const Value& x, const std::string& name) {
    const Value one = unit(x, name + ".branch1x1", {.channels = 320});
    Value three = unit(x, name + ".branch3x3_1", {.channels = 384});
    three = both_ways(three, name, "branch3x3_2");
    Value twice = unit(x, name + ".branch3x3dbl_1", {.channels = 448});
    twice = unit(twice, name + ".branch3x3dbl_2", {.channels = 384, .kernel = 3});
    twice = both_ways(twice, name, "branch3x3dbl_3");
    return net_.concat({one, three, twice, pooled(x, name, 192)}, name + ".concat");
  }

  /// A wide and a high convolution of the same input.
  Value both_ways(const Value& x, const std::string& block, const std::string& branch) {
    const std::string name = block + '.' + branch;
    const Value wide = unit(x, name + 'a', {.channels = 384, .kernel = 1, .width = 3});
    const Value high = unit(x, name + 'b', {.channels = 384, .kernel = 3, .width = 1});
    return net_.concat({wide, high}, name + ".concat");
  }

  Value auxiliary_head(const Value& x) {
    Value y = net_.avg_pool2d(x, {.kernel = 5, .stride = 3, .name = "AuxLogits.pool"});
    y = unit(y, "AuxLogits.conv0", {.channels = 128});
    y = unit(y, "AuxLogits.conv1",
             {.channels = 768, .kernel = 5, .keeps_size = false, .deviation = 0.01});
    y = net_.flatten(net_.adaptive_avg_pool2d(y, 1, "AuxLogits.avgpool"), "AuxLogits.flatten");
    return classifier(y, "AuxLogits.fc", 0.001);
  }

  Value classifier(const Value& x, const std::string& name, double deviation) {
    return net_.linear(
        x, {.features = spec_.classes, .name = name, .weight_init = Init::normal(deviation)});
  }

  ModelBuilder net_;
  const ModelSpec& spec_;
};

}  // namespace

Model make_inception_v3(const ModelSpec& spec) { return Inception(spec).build(); }

}  // namespace penstock::model::detail
