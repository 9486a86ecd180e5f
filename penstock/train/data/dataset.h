// What a data set is, what says which one, and the order in which a run sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/layer.h"
#include "penstock/train/data/class_order.h"
#include "penstock/train/data/left_out.h"
#include "penstock/train/data/sample_spec.h"
#include "penstock/train/data/translation.h"

namespace penstock::train {

/// Samples, each with the inputs of a model and what its loss needs. Immutable after construction;
/// thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;
  virtual const SampleSpec& sample() const = 0;
  /// Of the samples with these indices: one tensor per input, [n, ...], and the targets, [n, ...]
  /// (undefined where none are needed), of sample()'s types. Throws InternalError when an index is
  /// out of range.
  virtual model::Tensors inputs(const std::vector<int64_t>& indices) const = 0;
  virtual at::Tensor targets(const std::vector<int64_t>& indices) const = 0;
  /// Sizes that hold each of these samples: of each input and, last, of the targets. What inputs()
  /// and targets() have beyond them, along the first of these sizes, is padding. Default: all of
  /// them have sample()'s sizes.
  virtual std::vector<model::Shape> filled(const std::vector<int64_t>& indices) const;
  /// filled() where targets of pairs of sentences have so many places. Default: filled().
  virtual std::vector<model::Shape> filled_with(const std::vector<int64_t>& indices,
                                                int64_t target_places) const;
  /// inputs() in memory from which GPUs copy without blocking. Default: a copy there.
  virtual model::Tensors inputs_for_transfer(const std::vector<int64_t>& indices) const;
  /// Of pairs of sentences (PairDataset): inputs() with these targets so far, without their ends,
  /// instead of the samples' own. Throws InternalError where the samples are others.
  virtual model::Tensors inputs_with_targets(
      const std::vector<int64_t>& indices, const std::vector<std::vector<int64_t>>& targets) const;
  /// Whether making inputs takes long (files are decoded), so that it pays to make them before they
  /// are needed.
  virtual bool is_slow() const { return false; }
  /// What its files have and it has not, such as sentences that are too long for the model.
  virtual LeftOut left_out() const { return {}; }
  /// How many of these samples' targets count in the loss's mean (model::MiniBatchSize). Default:
  /// those that the model counts; every class; one per sample where targets are other numbers.
  virtual int64_t count_targets(const std::vector<int64_t>& indices) const;
};

struct DataSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  std::vector<std::string> classes = {};  ///< the names of 0, 1, ...; empty: they have none
  /// Of the user's own data: how many samples, of which classes, what was left out and why; a line.
  std::string summary = {};
  std::shared_ptr<const Translation> translation = {};  ///< null: it is none
  int64_t tensor_bytes = 0;  ///< of both, where tensors are counted (model::tensor_memory())
};

/// What a reader finds.
struct DataParts {
  std::shared_ptr<const Dataset> train = {};
  std::shared_ptr<const Dataset> test = {};  ///< null: a part of the others
  bool in_order = false;                     ///< neighbours belong together, as tokens do
  std::vector<std::string> classes = {};     ///< as DataSplit::classes
  std::string test_from = {};                ///< where `test` lies: "val/"
  LeftOut left_out = {};
  std::shared_ptr<const Translation> translation = {};  ///< as DataSplit::translation
};

struct DataSpec {
  /// A name, a file or a folder: data_formats.h lists them.
  std::string name = "fashion-mnist";
  /// Where the files are; of fashion-mnist, empty: the folder of Debian's dataset-fashion-mnist
  /// package.
  std::filesystem::path folder = {};
  /// What the model and its loss take (samples_for()). Images are zero-padded to the input's shape,
  /// one channel is repeated to several, a flat shape is flattened; an empty one is that of the
  /// images. Labels must be below its classes.
  SampleSpec sample = labelled({}, 10);
  int64_t train_samples = 0;  ///< 0: all (synthetic: 2048); otherwise the first this many
  int64_t test_samples = 0;   ///< 0: all (synthetic: 512)
  uint64_t seed = 1;          ///< synthetic
  // Files and folders of images:
  std::filesystem::path test_file = {};  ///< or such a folder; empty: a part of the data
  double test_share = 0.1;               ///< that part
  int64_t ignore_index = -100;           ///< model::LossSpec
  bool skip_bad_samples = false;         ///< otherwise one is an error
  ClassOrder class_order = ClassOrder::Text;
  bool turns_images = false;      ///< as their cameras were held (EXIF), which torchvision does not
  bool bytes_are_tokens = false;  ///< of a text, for models that know far more tokens than 256
  bool in_order = false;          ///< samples follow each other: the test samples are the last ones
};

/// A permutation of 0..size-1 that depends on (seed, epoch) only; the same on every machine.
std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle);

}  // namespace penstock::train
