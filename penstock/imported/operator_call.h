// One step of a program, ready to run through libtorch's dispatcher: the operator is found,
// constant arguments are converted once. Internal to imported.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/imported/flat_program.h"
#include "penstock/imported/symbolic_size.h"
#include "penstock/model/layer.h"

namespace penstock::imported {

/// What one step reads and does, by the names of the program.
struct StepFacts {
  std::vector<std::string> reads;    ///< tensors, each once
  std::vector<std::string> outputs;  ///< tensors; an unused one has an empty name
  std::vector<std::string> mutated;  ///< of `reads`: changed in place
  /// Of `reads`: the outputs share (or may share) their memory.
  std::vector<std::string> aliased;
  std::vector<SizeExpression> sizes;  ///< that arguments are made of; no numbers
  bool is_view = false;               ///< no arithmetic: the outputs are views of an input
  bool is_random = false;
};

/// Nothing, with a reason added, where this libtorch lacks the operator or an argument cannot be
/// handled.
std::optional<StepFacts> facts_of(const Step& step, const FlatProgram& program, Reasons& reasons);

/// What a call changes besides its arguments.
struct CallContext {
  const model::ForwardContext* forward = nullptr;
  const Symbols* symbols = nullptr;
};

/// Immutable; thread-safe.
class OperatorCall {
 public:
  /// `slot_of` gives a tensor's place in the table of values. `ordinal` tells random steps of one
  /// layer apart. The step has facts.
  OperatorCall(const Step& step, const FlatProgram& program,
               const std::function<size_t(const std::string&)>& slot_of, uint64_t ordinal);

  /// Reads and writes the table. Throws c10::Error when the operator fails.
  void run(std::vector<at::Tensor>& values, const CallContext& context) const;
  /// The slots that it reads and writes.
  std::vector<size_t> touched() const;
  /// The values that nobody reads after this call: run() drops them.
  std::vector<size_t> frees;

 private:
  enum class Kind : uint8_t {
    Plain,
    Dropout,
    FeatureDropout,
    Attention,
    Uniform,
    Normal,
    BatchNorm,
    Gelu,
    Linear,
    Recurrent
  };
  struct TensorPlace {
    size_t argument;
    size_t slot;
  };
  struct ListPlace {
    size_t argument;
    std::vector<std::optional<size_t>> slots;
    bool optional;  ///< a list of optional tensors
  };
  struct SizePlace {
    size_t argument;
    std::vector<SizeExpression> sizes;
    bool is_list;
    bool is_tensor;  ///< a number where the operator takes a tensor
  };

  void fill(std::vector<c10::IValue>& stack, const std::vector<at::Tensor>& values,
            const CallContext& context) const;
  /// A recurrent network layer by layer, with dropout in between.
  void run_recurrent(std::vector<c10::IValue>& stack, const CallContext& context) const;
  void run_special(std::vector<c10::IValue>& stack, const CallContext& context) const;

  Kind kind_ = Kind::Plain;
  bool in_place_ = false;
  bool gradient_ = true;
  std::optional<c10::OperatorHandle> handle_;
  std::vector<c10::IValue> constants_;  ///< one per argument of the schema
  std::vector<TensorPlace> tensors_;
  std::vector<ListPlace> lists_;
  std::vector<SizePlace> sizes_;
  std::vector<size_t> training_flags_;    ///< arguments that say whether it is training
  std::vector<size_t> devices_;           ///< arguments that say where the result is
  std::optional<size_t> generator_ = {};  ///< argument that takes a random generator
  uint64_t ordinal_ = 0;
  /// Per result of the operator: the slots of its tensors.
  std::vector<std::vector<std::optional<size_t>>> outputs_;
};

}  // namespace penstock::imported
