// ProgramLayer as shard::Shardable.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "penstock/imported/check_team.h"
#include "penstock/imported/program_layer.h"
#include "penstock/imported/step_edit.h"
#include "penstock/imported/step_facts.h"
#include "penstock/imported/team_layer.h"
#include "penstock/imported/transposed_weights.h"
#include "penstock/util/check.h"

namespace penstock::imported {

using shard::Type;

namespace {

/// Whatever their regions.
bool are_alike(const std::vector<Type>& one, const std::vector<Type>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const Type& a, const Type& b) {
                      return a.kind == b.kind && a.dimension == b.dimension && a.blocks == b.blocks;
                    });
}

/// Whether members do other things than the whole layer does.
bool is_divided(const shard::LayerTypes& types) {
  for (const auto* list : {&types.inputs, &types.weights, &types.buffers, &types.outputs}) {
    if (std::any_of(list->begin(), list->end(),
                    [](const Type& type) { return type.kind != shard::Kind::Equal; }))
      return true;
  }
  return false;
}

std::vector<model::ParameterSpec> own_specs(std::vector<model::ParameterSpec> specs,
                                            const std::vector<model::TensorPart>& parts) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (parts[i].is_whole()) continue;
    specs[i].shape = parts[i].sizes();
    if (specs[i].init.rule != model::Init::Rule::Given) continue;
    specs[i].init = model::Init::given(
        [values = specs[i].init.values, part = parts[i]] { return part.of(values()); });
  }
  return specs;
}

std::vector<model::TensorPart> parts_of(const std::vector<model::ParameterSpec>& specs,
                                        const std::vector<Type>& types,
                                        const shard::Member& member) {
  std::vector<model::TensorPart> parts;
  for (size_t i = 0; i < specs.size(); ++i)
    parts.push_back(member.part(types.at(i), specs[i].shape, i));
  return parts;
}

/// Of one sample: the batch is none of the dimensions.
std::vector<model::Shape> own_shapes(std::vector<model::Shape> shapes,
                                     const std::vector<Type>& types, const shard::Member& member) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (types.at(i).is_part() && types[i].dimension > 0)
      shapes[i].at(types[i].dimension - 1) = member.length(types[i]);
  }
  return shapes;
}

bool gathers(const Step& step) {
  return step.team && (step.team->kind == TeamStep::Kind::Gather ||
                       step.team->kind == TeamStep::Kind::GatherSum);
}

std::vector<StepWork> work_of(const LayerParts& parts, const FlatProgram& program) {
  const std::set<std::string> parameters(parts.parameters.begin(), parts.parameters.end());
  std::vector<StepWork> work;
  Reasons reasons;
  for (Step step : program.steps) {
    if (gathers(step)) {  // a copy, as far as memory goes
      step.node.target = "torch.ops.aten.clone.default";
      step.node.inputs.front().name = "self";
      step.team.reset();
    }
    if (step.team && !keeps_operator(step.team->kind)) continue;
    if (const auto facts = facts_of(step, program, reasons))
      work.emplace_back(step, *facts, program, parameters, parts.hints, parts.batch_symbol);
  }
  return work;
}

/// Of weights of products, convolutions, tables and LSTMs: which dimension what they make is.
std::map<std::string, size_t> row_dimensions(const FlatProgram& program,
                                             const std::vector<std::string>& weights) {
  struct Weight {
    std::string_view argument;
    size_t dimension = 0;
  };
  static const std::map<std::string, Weight, std::less<>> kWeights = {
      {"linear", {"weight", 0}}, {"addmm", {"mat2", 1}},       {"mm", {"mat2", 1}},
      {"matmul", {"other", 1}},  {"embedding", {"weight", 0}}, {"conv1d", {"weight", 0}},
      {"conv2d", {"weight", 0}}, {"conv3d", {"weight", 0}},    {"convolution", {"weight", 0}}};
  std::map<std::string, size_t> rows;
  for (const Step& step : program.steps) {
    const StepEdit edit(step, program);
    // All others of an LSTM are divided as the first one.
    if (const auto some = edit.tensors("params"); edit.name() == "lstm" && !some.empty())
      rows[some.front()] = 0;
    const auto found = kWeights.find(edit.name());
    if (found == kWeights.end()) continue;
    if (const auto weight = edit.tensor(found->second.argument))
      rows[*weight] = found->second.dimension;
  }
  for (const auto& [step, use] : transposed_weights(program, weights)) rows[use.weight] = 0;
  return rows;
}

/// Asks another walk, but for sequences.
class WithoutSequences final : public shard::Walk {
 public:
  explicit WithoutSequences(shard::Walk& walk) : Walk(walk.regions()), walk_(walk) {}
  std::optional<Type> spread(size_t parameter) override { return walk_.spread(parameter); }
  int team() const override { return walk_.team(); }

 private:
  shard::Walk& walk_;
};

/// Answers as the types say.
class KnownTypes final : public shard::Walk {
 public:
  KnownTypes(shard::Regions& regions, const shard::LayerTypes& types, int team)
      : Walk(regions), types_(types), team_(team) {}
  std::optional<Type> fixed_sequence(int64_t places) override {
    for (const Type& type : types_.sequences) {
      if (type.blocks.front() == places) return type;
    }
    return std::nullopt;
  }
  std::optional<Type> spread(size_t parameter) override {
    const Type& type = types_.weights.at(parameter);
    return type.is_part() ? std::optional(type) : std::nullopt;
  }
  int team() const override { return team_; }

 private:
  const shard::LayerTypes& types_;
  int team_;
};

}  // namespace

std::vector<size_t> ProgramLayer::candidates() const {
  const std::map<std::string, size_t> rows = row_dimensions(program_, parts_.parameters);
  std::map<std::string, size_t> reads;
  for (const Step& step : program_.steps) {
    for (const std::string& name : StepEdit(step, program_).reads()) ++reads[name];
  }
  std::vector<size_t> result;
  for (size_t p = 0; p < parts_.parameters.size(); ++p) {
    const std::string& name = parts_.parameters[p];
    if (rows.contains(name) && reads[name] == 1 && parts_.parameter_specs[p].shape.size() > 1)
      result.push_back(p);
  }
  return result;
}

size_t ProgramLayer::row_dimension(size_t parameter) const {
  return row_dimensions(program_, parts_.parameters).at(parts_.parameters.at(parameter));
}

std::vector<std::string> ProgramLayer::check(const model::Layer& piece,
                                             const shard::LayerTypes& types,
                                             const shard::Member& member) const {
  const auto* const own = dynamic_cast<const ProgramLayer*>(&piece);
  if (own == nullptr) return {"it is no layer of a program"};
  if (own == this && !is_divided(types)) return {};
  return check_team({parts_, program_, {own->program_, types, own->parts_.value_types}, member});
}

shard::LayerTypes ProgramLayer::infer(const std::vector<Type>& inputs, const Shapes&,
                                      shard::Walk& walk) const {
  shard::LayerTypes found = in_team(parts_, program_, inputs, walk, nullptr).types;
  // What all steps read whole, other layers may read so, too: it comes in that form.
  std::vector<Type> read = inputs;
  for (size_t i = 0; i < read.size(); ++i) {
    if (walk.regions().is_sequence(inputs[i])) read[i] = found.inputs[i];
  }
  if (read == inputs) return found;
  WithoutSequences none(walk);
  shard::Walk& same = found.sequences.empty() ? static_cast<shard::Walk&>(none) : walk;
  shard::LayerTypes again = in_team(parts_, program_, read, same, nullptr).types;
  const bool is_same = again.outputs == found.outputs && again.weights == found.weights;
  if (is_same) return again;
  for (size_t i = 0; i < read.size(); ++i) {
    if (walk.regions().is_sequence(inputs[i])) found.inputs[i] = inputs[i];
  }
  return found;
}

std::vector<shard::Piece> ProgramLayer::pieces(const shard::LayerTypes& types, const Shapes&,
                                               const shard::Member& member) const {
  shard::Piece piece{.suffix = "", .layer = nullptr};
  for (size_t i = 0; i < parts_.inputs.size(); ++i) piece.inputs.push_back({{}, i});
  piece.parameters = parts_of(parts_.parameter_specs, types.weights, member);
  piece.buffers = parts_of(parts_.buffer_specs, types.buffers, member);
  piece.types = types;
  LayerParts own = parts_;
  own.constant_values = constants_.stored();
  FlatProgram program = program_;
  if (is_divided(types)) {
    shard::Regions regions = member.regions;
    KnownTypes walk(regions, types, member.team);
    TeamLayer made = in_team(parts_, program_, types.inputs, walk, &member);
    PENSTOCK_CHECK(are_alike(made.types.weights, types.weights) &&
                       are_alike(made.types.outputs, types.outputs),
                   parts_.kind);
    program = std::move(made.program);
    own.value_types = std::move(made.values);
    own.parameter_specs = own_specs(std::move(own.parameter_specs), piece.parameters);
    own.buffer_specs = own_specs(std::move(own.buffer_specs), piece.buffers);
    own.input_shapes = own_shapes(std::move(own.input_shapes), types.inputs, member);
    own.output_shapes = own_shapes(std::move(own.output_shapes), types.outputs, member);
    own.work = work_of(own, program);
    // What is exchanged in a backward pass must not be done in another order by other members.
    own.weight_gradients_can_wait =
        own.weight_gradients_can_wait &&
        std::none_of(program.steps.begin(), program.steps.end(), [](const Step& step) {
          return step.team &&
                 (is_form(step.team->kind) || step.team->kind == TeamStep::Kind::SumPart);
        });
  }
  own.steps.resize(program.steps.size());
  std::iota(own.steps.begin(), own.steps.end(), size_t{0});
  piece.layer = std::make_shared<ProgramLayer>(std::move(own), program);
  return {std::move(piece)};
}

}  // namespace penstock::imported
