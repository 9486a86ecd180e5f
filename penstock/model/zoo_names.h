// The names of the models of zoo.h, for programs without libtorch.
#pragma once

#include <array>
#include <string_view>

namespace penstock::model {

/// In the order of zoo(), which has the other properties; a test compares the two.
inline constexpr std::array<std::string_view, 15> kZooNames = {
    "mlp",          "tied_mlp", "lenet5", "vgg_small", "alexnet", "vgg16",  "resnet18", "resnet50",
    "inception_v3", "partime",  "gpt",    "awd_lm",    "gnmt8",   "gnmt16", "s2vt"};

}  // namespace penstock::model
