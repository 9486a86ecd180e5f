// Data sets by name, file or folder.
//
//   DataSplit data = load_data({.name = "mine.npz", .sample = samples_for(model, loss)});
#pragma once

#include <functional>
#include <span>
#include <string>

#include "penstock/train/data/data_formats.h"
#include "penstock/train/data/dataset.h"

namespace penstock::train {

/// Reads DataSpec::name, or another file of that kind (DataSpec::test_file).
using DataReader = std::function<DataParts(const DataSpec& spec, const std::string& name)>;

/// A kind of data of a program's own.
struct DataFormat {
  DataFormatRow row;
  DataReader read;
};

/// Data of the first kind that the name is of: of `more`, then of kDataFormats. Without
/// DataSpec::test_file and samples for the test, a share of the user's own data is the test set:
/// drawn at random, always the same samples; the last ones of what is in order. Throws ConfigError
/// (unknown name, missing folder or file: says which package to install; samples that the model
/// cannot take), ParseError (damaged files).
DataSplit load_data(const DataSpec& spec, std::span<const DataFormat> more = {});

}  // namespace penstock::train
