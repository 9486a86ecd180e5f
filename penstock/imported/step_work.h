// What the steps of a program compute, as counts: for analytic profiles. Internal to imported.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "penstock/imported/step_facts.h"
#include "penstock/profile/operation.h"

namespace penstock::imported {

/// One step's shapes; sizes may depend on symbols.
class StepWork {
 public:
  /// `symbols` are the values in the example that the model was exported with.
  StepWork(const Step& step, const StepFacts& facts, const FlatProgram& program,
           const std::set<std::string>& parameters, Symbols symbols, std::string batch_symbol);

  /// Adds what the step does with `batch` samples.
  void add_to(profile::LayerWork& work, int64_t batch) const;

  struct Operand {
    std::string name;
    std::vector<SizeExpression> sizes;
    int64_t bytes_per_number = 4;
    bool is_parameter = false;
    bool is_fraction = true;
  };
  const std::string& name() const { return name_; }
  bool is_view() const { return is_view_; }
  /// Of its arguments: a tensor that is read twice counts twice.
  size_t tensors() const { return tensors_; }
  const std::vector<Operand>& reads() const { return reads_; }
  const std::vector<Operand>& outputs() const { return outputs_; }
  int64_t bytes_of(const Operand& operand, int64_t batch) const;

 private:
  using Sizes = std::vector<int64_t>;

  void add_product(profile::LayerWork& work, const Sizes& left, const Sizes& result,
                   bool right_is_parameter) const;
  void add_convolution(profile::LayerWork& work, const Sizes& input, const Sizes& weight,
                       const Sizes& result) const;

  std::string name_;  ///< "conv2d"
  bool is_view_ = false;
  size_t tensors_ = 0;
  std::vector<Operand> reads_;
  std::vector<Operand> outputs_;
  Symbols symbols_;
  std::string batch_symbol_;
};

}  // namespace penstock::imported
