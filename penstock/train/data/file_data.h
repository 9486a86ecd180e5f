// The user's own data, out of files.
#pragma once

#include <string>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

/// Whether DataSpec::name is a file, which ends in .npz, .npy or .txt, or a folder that is there.
bool is_data_file(const std::string& name);

/// .npz: arrays by name, the samples along their first dimension. An input's array has the input's
/// name; where a model has one input, any array that is left is it. Targets are the array
/// "targets", "target", "labels", "label" or "y". Arrays whose names end in _train and _test are
/// those two parts. .npy: one row of tokens. .txt: the same, its bytes. A folder: images in a
/// folder per class (image_files.h), or such folders named train and test (or val).
///
/// Without DataSpec::test_file and arrays for the test, a share of the samples is the test set:
/// drawn at random, always the same ones, from arrays and images; the last ones of tokens. Bad
/// samples (TensorDataset::bad_samples(), images that cannot be decoded) are left out with a
/// warning, or an error; of images, when they are needed. Throws ConfigError and
/// ParseError naming file and array.
DataSplit load_file(const DataSpec& spec);

}  // namespace penstock::train
