// Data sets in memory, and the order in which a run sees them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/train/data/idx.h"

namespace penstock::train {

/// Labelled samples. Immutable after construction; thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  virtual model::Shape sample_shape() const = 0;
  /// Inputs [n, ...] float32 and targets [n] int64 of the samples with these indices. Throws
  /// InternalError when an index is out of range.
  virtual at::Tensor inputs(const std::vector<int64_t>& indices) const = 0;
  virtual at::Tensor targets(const std::vector<int64_t>& indices) const = 0;
};

struct DataSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
};

struct DataSpec {
  /// "fashion-mnist", "synthetic", or "idx" (four IDX files in `folder` under their standard
  /// names).
  std::string name = "fashion-mnist";
  /// Where the IDX files are; empty: the folder of Debian's dataset-fashion-mnist package.
  std::filesystem::path folder = {};
  model::Shape
      /// The input shape of the model: images are zero-padded to it, one channel is repeated to
      /// several, a flat shape is flattened.
      sample_shape;
  int64_t classes = 10;       ///< synthetic and idx (labels must be below it)
  int64_t train_samples = 0;  ///< 0: all (synthetic: 2048); otherwise the first this many
  int64_t test_samples = 0;   ///< 0: all (synthetic: 512)
  uint64_t seed = 1;          ///< synthetic
};

/// Throws ConfigError (unknown name, missing folder or file: says which package to install; shapes
/// that cannot be adapted), ParseError (damaged files).
DataSplit load_data(const DataSpec& spec);

/// A permutation of 0..size-1 that depends on (seed, epoch) only; the same on every machine.
std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle);

}  // namespace penstock::train
