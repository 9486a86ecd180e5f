// Which of a file's arrays are the samples of a training: chosen by their names and headers, before
// one is read.
//
//   Npz file("mine.npz");
//   ArrayParts parts = array_parts(file);
//   auto data = ArrayChoice(spec, file, parts.train).read("mine.npz");
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/train/data/dataset.h"
#include "penstock/train/data/npy.h"
#include "penstock/train/data/tensor_dataset.h"

namespace penstock::train {

/// Arrays by the name that they have in their part: "x" of "x_train", "images" of "train_images".
using NamedArrays = std::map<std::string, std::string>;

struct ArrayParts {
  NamedArrays train;
  NamedArrays test;       ///< empty: none
  std::string test_from;  ///< "test", as the names say it
  LeftOut left_out;
};

/// The arrays as parts (part_names.h), where a training part is among them; otherwise all are.
ArrayParts array_parts(const Npz& file);

class ArrayChoice {
 public:
  /// An input's array has its name; where a model has one input, it is the one array that is left,
  /// or the one of these that fits. Targets are called targets, target, labels, label or y. Throws
  /// ConfigError: none, several, or of sizes that do not fit.
  ArrayChoice(const DataSpec& spec, Npz& file, NamedArrays arrays);

  /// That read() takes.
  int64_t memory() const;
  std::shared_ptr<const TensorDataset> read(const std::string& name);
  /// Arrays that nothing needs.
  LeftOut left_out() const;

 private:
  std::string taken(std::string_view name);
  std::string the_input_left() const;
  std::string the_targets();
  void check(const std::string& name, const std::string& array, at::ScalarType type,
             const model::Shape& shape) const;
  [[noreturn]] void refuse(const std::string& what) const;
  std::string file_has() const;

  const DataSpec& spec_;
  Npz& file_;
  NamedArrays all_;
  NamedArrays left_;
  std::vector<std::string> inputs_;  ///< names in the file
  std::string targets_;              ///< empty: none
};

}  // namespace penstock::train
