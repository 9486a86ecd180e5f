#include "penstock/imported/program_layer.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/saved_by_steps.h"
#include "penstock/imported/step_code.h"
#include "penstock/imported/stored_values.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::imported {

namespace {

/// Outside of its range a program may compute something else than its module. Empty: inside.
std::string beyond(int64_t samples, const exported::SymbolRange& range) {
  if (samples >= range.min.value_or(samples) && samples <= range.max.value_or(samples)) return {};
  const std::string expected = range.max
                                   ? fmt::format("{} to {}", range.min.value_or(1), *range.max)
                                   : fmt::format("{} or more", range.min.value_or(1));
  return fmt::format("the program was exported for {} (torch.export.Dim)", expected);
}

void check_batch(int64_t samples, const exported::SymbolRange& range) {
  const std::string why = beyond(samples, range);
  if (why.empty()) return;
  throw RuntimeError(
      fmt::format("{} sample(s) in a micro-batch; {}: choose fewer or more micro-batches per step",
                  samples, why));
}

/// Undefined for types that are not supported.
at::ScalarType output_type(const std::string& output, const FlatProgram& program) {
  const auto found = program.tensors.find(output);
  try {
    return found == program.tensors.end() ? at::kFloat : torch_type(found->second.type);
  } catch (const ConfigError&) {
    return at::ScalarType::Undefined;
  }
}

/// Parameters have their slots behind the inputs.
bool reads_parameters(const OperatorCall& call, const LayerParts& parts) {
  const std::vector<size_t> slots = call.touched();
  return std::any_of(slots.begin(), slots.end(), [&](size_t slot) {
    return slot >= parts.inputs.size() && slot < parts.inputs.size() + parts.parameters.size();
  });
}

std::vector<std::string> names_of(const LayerParts& parts) {
  std::vector<std::string> names;
  for (const auto* some :
       {&parts.inputs, &parts.outputs, &parts.parameters, &parts.buffers, &parts.constants})
    names.insert(names.end(), some->begin(), some->end());
  return names;
}

}  // namespace

ProgramLayer::ProgramLayer(LayerParts parts, const FlatProgram& program)
    : parts_(std::move(parts)),
      program_(excerpt(program, parts_.steps, names_of(parts_))),
      constants_(std::move(parts_.constant_values)),
      shapes_({.names = parts_.inputs, .shapes = parts_.input_shapes},
              {.names = parts_.outputs, .shapes = parts_.output_shapes}, parts_.hints,
              parts_.batch_symbol, parts_.ranges, program) {
  std::map<std::string, size_t> slots;
  for (const auto* names :
       {&parts_.inputs, &parts_.parameters, &parts_.buffers, &parts_.constants}) {
    for (const std::string& name : *names) slots.emplace(name, num_values_++);
  }
  const auto slot_of = [&](const std::string& name) {
    const auto [place, is_new] = slots.emplace(name, num_values_);
    if (is_new) ++num_values_;
    return place->second;
  };
  for (const size_t s : parts_.steps) {
    const Step& step = program.steps[s];
    calls_.emplace_back(step, program, slot_of, calls_.size());
    places_.push_back(place_of(step.node));
    if (calls_.back().normalises_batch()) note_normalised(step.node, program);
    if (!is_product(step.node.target) && reads_parameters(calls_.back(), parts_))
      has_products_alone_ = false;
    code_ += code_of(step, program, slot_of);
  }
  for (const std::string& name : parts_.outputs) outputs_.push_back(slot_of(name));
  plan_frees();
  find_own_types();
  describe(program);
}

void ProgramLayer::find_own_types() {
  const auto type_of = [&](const std::string& name) { return output_type(name, program_); };
  const bool has_own =
      std::any_of(program_.tensors.begin(), program_.tensors.end(),
                  [](const auto& one) { return exported::is_short_float(one.second.type); });
  if (!has_own) return;
  for (const std::string& name : parts_.inputs) taken_as_.push_back(type_of(name));
  for (const model::ParameterSpec& spec : parts_.parameter_specs)
    taken_as_.push_back(spec.stored_as);
  const auto first = taken_as_.begin() + std::ssize(parts_.inputs);
  const bool is_one =
      std::all_of(first, taken_as_.end(), [&](at::ScalarType type) { return type == *first; });
  own_weight_type_ = first != taken_as_.end() && is_one ? *first : at::kFloat;
}

at::Tensor ProgramLayer::as_taken(size_t place, const at::Tensor& value) const {
  const bool differs = !taken_as_.empty() && value.is_floating_point() &&
                       at::isFloatingType(taken_as_[place]) &&
                       value.scalar_type() != taken_as_[place];
  return differs ? value.to(taken_as_[place]) : value;
}

void ProgramLayer::describe(const FlatProgram& program) {
  for (size_t i = 0; i < parts_.inputs.size(); ++i) {
    code_ += fmt::format("input {}{}\n", layout_text(parts_.inputs[i], program),
                         parts_.copied[i] ? ", copied" : "");
  }
  for (const auto& constant : constants_.stored()) {
    code_ += fmt::format("constant {} {}\n", c10::toString(constant->type()),
                         fmt::join(constant->sizes(), "x"));
  }
  for (const std::string& output : parts_.outputs) {
    code_ += fmt::format("output {}\n", layout_text(output, program));
    output_types_.push_back(output_type(output, program));
    const auto meta = program.tensors.find(output);
    output_metas_.push_back(meta == program.tensors.end() ? exported::TensorMeta{} : meta->second);
  }
  for (const SymbolSource& symbol : parts_.symbols) {
    code_ += fmt::format("{} is input {}, dimension {}, by {}\n", symbol.symbol, symbol.input,
                         symbol.dimension, symbol.factor);
  }
}

void ProgramLayer::note_normalised(const exported::Node& node, const FlatProgram& program) {
  const auto* const input = std::get_if<exported::TensorArgument>(&node.inputs.front().value);
  if (input == nullptr) return;
  const auto meta = program.tensors.find(input->name);
  if (meta != program.tensors.end()) normalised_.push_back(meta->second.sizes);
}

std::string ProgramLayer::why_not(int64_t samples, const std::vector<model::Shape>&) const {
  if (parts_.user_input) {
    const std::string why = beyond(samples, parts_.batch);
    if (!why.empty()) return why;
  }
  for (const std::vector<exported::SymbolicInt>& sizes : normalised_) {
    try {
      std::vector<int64_t> values = values_of(sizes, samples);
      if (values.size() < 2) continue;
      values[1] = 1;  // channels
      if (std::all_of(values.begin(), values.end(), [](int64_t n) { return n == 1; }))
        return model::kOneNumberPerChannel;
    } catch (const ConfigError&) {  // known when it is run
    }
  }
  return {};
}

void ProgramLayer::plan_frees() {
  std::vector<bool> needed(num_values_, false);
  for (const size_t slot : outputs_) needed[slot] = true;
  for (size_t i = calls_.size(); i-- > 0;) {
    for (const size_t slot : calls_[i].touched()) {
      if (!needed[slot]) calls_[i].frees.push_back(slot);
      needed[slot] = true;
    }
  }
}

std::vector<int64_t> ProgramLayer::values_of(const std::vector<exported::SymbolicInt>& numbers,
                                             int64_t samples) const {
  Symbols symbols = parts_.hints;
  if (!parts_.batch_symbol.empty()) symbols[parts_.batch_symbol] = samples;
  std::vector<int64_t> values;
  for (const exported::SymbolicInt& number : numbers)
    values.push_back(SizeExpression(number).evaluate(symbols));
  return values;
}

at::Tensor ProgramLayer::empty_output(size_t output, int64_t batch) const {
  const exported::TensorMeta& meta = output_metas_.at(output);
  if (meta.sizes.empty() || meta.strides.size() != meta.sizes.size() || parts_.shares_output)
    return {};
  try {
    return at::empty_strided(values_of(meta.sizes, batch), values_of(meta.strides, batch),
                             at::TensorOptions().dtype(output_types_.at(output)));
  } catch (const ConfigError&) {  // an expression that is not read here
    return {};
  }
}

int64_t ProgramLayer::constant_bytes() const {
  int64_t bytes = Layer::constant_bytes();
  for (const auto& constant : constants_.stored())
    bytes = saturating_add(bytes, constant->num_bytes());
  return bytes;
}

std::vector<model::Shape> ProgramLayer::output_shapes(
    const std::vector<model::Shape>& inputs) const {
  return shapes_.outputs(inputs);
}

profile::LayerWork ProgramLayer::work(const std::vector<model::Shape>&,
                                      const std::vector<model::Shape>&, int64_t batch) const {
  profile::LayerWork work;
  for (const StepWork& step : parts_.work) step.add_to(work, batch);
  set_saved(parts_.work, {parts_.inputs, parts_.outputs, parts_.parameters, parts_.constants},
            batch, work);
  return work;
}

model::Tensors ProgramLayer::forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                                     model::TensorSpan inputs,
                                     const model::ForwardContext& context) const {
  PENSTOCK_CHECK(inputs.size() == parts_.inputs.size(), inputs.size(), parts_.inputs.size());
  if (parts_.user_input) check_batch(inputs[*parts_.user_input].size(0), parts_.batch);
  std::vector<at::Tensor> values(num_values_);
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    values[next++] = as_taken(i, parts_.copied[i] ? inputs[i].clone() : inputs[i]);
  for (const at::Tensor& weight : weights) {
    values[next] = as_taken(next, weight);
    ++next;
  }
  // Evaluation leaves what training has counted and averaged as it is.
  for (const at::Tensor& buffer : buffers)
    values[next++] = context.training ? buffer : buffer.clone();
  for (at::Tensor& constant : constants_.on(context.device)) values[next++] = std::move(constant);

  Symbols symbols;
  for (const SymbolSource& source : parts_.symbols) {
    const int64_t size = inputs[source.input].size(source.dimension);
    if (size % source.factor != 0) {
      throw RuntimeError(
          fmt::format("an input has size {} in dimension {}, expected a multiple of "
                      "{}",
                      size, source.dimension, source.factor));
    }
    symbols[source.symbol] = size / source.factor;
  }
  const CallContext call_context{.forward = &context, .symbols = &symbols};
  for (size_t i = 0; i < calls_.size(); ++i) {
    try {
      calls_[i].run(values, call_context);
    } catch (const c10::Error& error) {
      throw RuntimeError(fmt::format("{}: {}", places_[i], error.what_without_backtrace()));
    }
  }
  model::Tensors outputs;
  outputs.reserve(outputs_.size());
  for (const size_t slot : outputs_) outputs.push_back(values[slot]);
  if (parts_.shares_output)
    outputs.front() = outputs.front().reshape({1}).expand({inputs.front().size(0)});
  return outputs;
}

}  // namespace penstock::imported
