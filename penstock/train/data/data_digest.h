// Tells apart data sets that different machines hold: ranks of one job must train on the same one.
#pragma once

#include <string>

#include "penstock/train/data/dataset.h"

namespace penstock::train {

/// "fashion-mnist, 60000 + 10000 samples, CRC 1f3a09c2": the CRC is over all classes (where a
/// sample has one) and the inputs of some samples, evenly spread. Milliseconds.
std::string data_digest(const DataSplit& data);
/// The same of one data set: "fashion-mnist, 60000 samples, CRC 03bc71d5".
std::string data_digest(const Dataset& data);

}  // namespace penstock::train
