// Published sets of images with a class each, out of their files.
#pragma once

#include "penstock/train/data/dataset.h"

namespace penstock::train {

// Each throws ConfigError (a missing folder or file, samples that the model cannot take) and
// ParseError (damaged files). DataSpec::name is the data's name.

/// Four IDX files, of Debian's package where DataSpec::folder is empty.
DataSplit load_fashion_mnist(const DataSpec& spec);
/// Four IDX files in DataSpec::folder under MNIST's names, gzip or not.
DataSplit load_idx(const DataSpec& spec);
/// The binary version of CIFAR-10, or (`fine`) CIFAR-100, in DataSpec::folder.
DataSplit load_cifar(const DataSpec& spec, bool fine);

}  // namespace penstock::train
