// Some steps of a PyTorch program as a layer: they run through libtorch's dispatcher, with
// autograd, as they would in Python. Internal to imported.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/exported/program.h"
#include "penstock/imported/device_copies.h"
#include "penstock/imported/layer_shapes.h"
#include "penstock/imported/operator_call.h"
#include "penstock/imported/step_work.h"
#include "penstock/model/batch_limits.h"
#include "penstock/model/counts_targets.h"
#include "penstock/model/float32_layers.h"
#include "penstock/model/keeps_constants.h"
#include "penstock/model/known_code.h"
#include "penstock/model/layer.h"
#include "penstock/shard/shardable.h"

namespace penstock::imported {

/// A symbol's value: the size of an input in one dimension, divided by a factor.
struct SymbolSource {
  std::string symbol;
  size_t input = 0;
  int64_t dimension = 0;
  int64_t factor = 1;
};

/// What a layer is made of; names are those of the flat program.
struct LayerParts {
  std::string kind;
  std::vector<size_t> steps;        ///< positions in the program, in order
  std::vector<std::string> inputs;  ///< values of other layers and of the user
  std::vector<bool> copied;         ///< per input: the steps change it
  std::vector<std::string> outputs;
  std::vector<std::string> parameters;  ///< as in `parameter_specs`
  std::vector<std::string> buffers;     ///< as in `buffer_specs`
  std::vector<std::string> constants;   ///< as in `constant_values`
  std::set<std::string> packed;         ///< of `constants`: weights that are held in 8 bits
  std::vector<model::ParameterSpec> parameter_specs;
  std::vector<model::ParameterSpec> buffer_specs;
  DeviceCopies::Stored constant_values;
  std::vector<model::Shape> input_shapes;   ///< of one sample, in the example
  std::vector<model::Shape> output_shapes;  ///< likewise
  std::map<std::string, exported::SymbolRange> ranges = {};
  Symbols hints;             ///< each symbol's value in the example
  std::string batch_symbol;  ///< empty: the program is for one batch
  /// The only output is one number for all samples: each of them gets it.
  bool shares_output = false;
  std::vector<SymbolSource> symbols;
  std::optional<size_t> user_input;  ///< position in `inputs` of one with a sample per row
  exported::SymbolRange batch;       ///< its samples
  std::vector<StepWork> work;
  bool weight_gradients_can_wait = true;
  bool is_random = false;
  model::TargetCount target_count = {};  ///< of the program's own loss, where this layer makes it
  std::string note = {};                 ///< of the first layer: note_of() the model
  /// In a team: of the values that are not equal.
  std::map<std::string, shard::Type> value_types = {};
};

/// Immutable; thread-safe.
class ProgramLayer final : public model::Layer,
                           public model::ComputesInFloat32,
                           public model::MayHaveOwnTypes,
                           public model::LimitsBatches,
                           public model::CountsTargets,
                           public model::KnownCode,
                           public model::KeepsConstants,
                           public shard::Shardable {
 public:
  ProgramLayer(LayerParts parts, const FlatProgram& program);

  std::string kind() const override { return parts_.kind; }
  std::string code() const override { return code_; }
  std::vector<at::ScalarType> output_types() const override { return output_types_; }
  at::Tensor empty_output(size_t output, int64_t batch) const override;
  std::vector<model::ParameterSpec> parameters() const override { return parts_.parameter_specs; }
  std::vector<model::ParameterSpec> buffers() const override { return parts_.buffer_specs; }
  /// Frozen weights are constants of the program.
  int64_t constant_bytes() const override;
  int num_outputs() const override { return static_cast<int>(parts_.outputs.size()); }
  std::string why_not(int64_t samples, const std::vector<model::Shape>& outputs) const override;
  bool weight_gradients_can_wait() const override { return parts_.weight_gradients_can_wait; }
  bool is_random() const override { return parts_.is_random; }
  bool has_products_alone() const override { return has_products_alone_; }
  std::optional<at::ScalarType> own_weight_type() const override { return own_weight_type_; }
  model::TargetCount target_count() const override { return parts_.target_count; }
  const std::string& note() const { return parts_.note; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override;
  profile::LayerWork work(const std::vector<model::Shape>& inputs,
                          const std::vector<model::Shape>& outputs, int64_t batch) const override;
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                         model::TensorSpan inputs,
                         const model::ForwardContext& context) const override;

  // In a team: program_layer_team.cpp.
  std::vector<size_t> candidates() const override;
  shard::LayerTypes infer(const std::vector<shard::Type>& inputs, const Shapes& shapes,
                          shard::Walk& walk) const override;
  std::vector<shard::Piece> pieces(const shard::LayerTypes& types, const Shapes& shapes,
                                   const shard::Member& member) const override;
  size_t row_dimension(size_t parameter) const override;
  std::vector<std::string> check(const model::Layer& piece, const shard::LayerTypes& types,
                                 const shard::Member& member) const override;

  model::Tensors constants(at::Device device) const { return constants_.on(device); }
  void release_constants() const override { constants_.release(); }
  const LayerParts& parts() const { return parts_; }
  /// Its steps alone.
  const FlatProgram& program() const { return program_; }

 private:
  /// What a batch normalisation takes the statistics of.
  void note_normalised(const exported::Node& node, const FlatProgram& program);
  void plan_frees();
  /// The value of each number where a micro-batch has so many samples. Throws ConfigError for an
  /// expression that is not read here.
  std::vector<int64_t> values_of(const std::vector<exported::SymbolicInt>& numbers,
                                 int64_t samples) const;
  /// Where some step reads or makes a number of 16 bits.
  void find_own_types();
  /// The input or parameter in the type that the steps take: differentiable.
  at::Tensor as_taken(size_t place, const at::Tensor& value) const;
  /// Adds what the program says of inputs, constants and outputs.
  void describe(const FlatProgram& program);

  LayerParts parts_;
  FlatProgram program_;
  DeviceCopies constants_;
  std::vector<OperatorCall> calls_;
  std::vector<std::string> places_;  ///< of the calls, for errors
  bool has_products_alone_ = true;
  std::optional<at::ScalarType> own_weight_type_;
  /// Of inputs and parameters, as the steps take them; empty: no types of its own.
  std::vector<at::ScalarType> taken_as_;
  size_t num_values_ = 0;  ///< inputs, parameters, buffers, constants, then the rest
  std::vector<size_t> outputs_;
  std::string code_;
  std::vector<at::ScalarType> output_types_;
  std::vector<exported::TensorMeta> output_metas_;  ///< no sizes: not described
  /// Of what batch normalisations take the statistics.
  std::vector<std::vector<exported::SymbolicInt>> normalised_;
  LayerShapes shapes_;
};

}  // namespace penstock::imported
