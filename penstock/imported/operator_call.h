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
#include "penstock/imported/special_operators.h"
#include "penstock/imported/symbolic_size.h"
#include "penstock/model/layer.h"

namespace penstock::imported {

/// What a call changes besides its arguments.
struct CallContext {
  const model::ForwardContext* forward = nullptr;
  const Symbols* symbols = nullptr;
};

/// Immutable; thread-safe.
class OperatorCall {
 public:
  /// `slot_of` gives a tensor's place in the table of values. `ordinal` tells random steps of one
  /// layer apart, unless the step has its own. The step has facts, or is one of a team.
  OperatorCall(const Step& step, const FlatProgram& program,
               const std::function<size_t(const std::string&)>& slot_of, uint64_t ordinal);

  /// Reads and writes the table. Throws c10::Error when the operator fails.
  void run(std::vector<at::Tensor>& values, const CallContext& context) const;
  /// Whether it is a batch normalisation that takes the statistics of its input in training.
  bool normalises_batch() const;
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
    Recurrent,
    Written,
    Team
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

  void choose_kind(const exported::Node& node);
  /// An argument of the schema; null where this libtorch has no such operator.
  const c10::Argument* wanted(size_t argument) const;
  /// Notes where an argument comes from; returns it where it is a constant.
  c10::IValue place(size_t argument, const exported::Argument* given, const FlatProgram& program,
                    const std::function<size_t(const std::string&)>& slot_of);
  /// Notes what the schema says that a constant means: a device, whether it is training.
  void note_meaning(size_t argument, const exported::Node& node,
                    const std::vector<const exported::Argument*>& arguments);

  void fill(std::vector<c10::IValue>& stack, const std::vector<at::Tensor>& values,
            const CallContext& context) const;
  /// A mask of dropout for a tensor of these sizes; where that is a part, its part of the mask of
  /// the whole.
  at::Tensor mask(std::vector<int64_t> sizes, const at::Tensor& like, double probability,
                  const CallContext& context) const;
  /// A recurrent network layer by layer, with dropout in between; in a team, with the member's
  /// hidden units.
  void run_recurrent(std::vector<c10::IValue>& stack, const CallContext& context) const;
  void run_special(std::vector<c10::IValue>& stack, const CallContext& context) const;

  void take_results(const std::vector<c10::IValue>& stack, std::vector<at::Tensor>& values) const;

  Kind kind_ = Kind::Plain;
  WrittenOut written_ = nullptr;
  std::optional<TeamStep> team_;
  std::shared_ptr<model::Team> alone_;  ///< where a member's LSTM runs without the others
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
