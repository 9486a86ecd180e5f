#include "penstock/imported/operator_call.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/lstm_units.h"
#include "penstock/imported/operator_arguments.h"
#include "penstock/model/device/devices.h"
#include "penstock/model/layers/gelu.h"
#include "penstock/model/layers/int8_product.h"
#include "penstock/model/layers/linear_product.h"
#include "penstock/model/team_functions.h"
#include "penstock/model/torch_compat.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::imported {

using exported::Argument;
using exported::TensorArgument;

namespace {

/// Whether no tensor goes in, so that none says on which device the result is.
bool is_made_of_nothing(const exported::Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const auto& input) { return tensor_names(input.value).empty(); });
}

at::Generator seeded(const CallContext& context, uint64_t ordinal) {
  return model::installed_devices().generator(context.forward->device,
                                              derive_seed(context.forward->seed, ordinal));
}

/// Attention's arguments where this libtorch has no such operator.
std::vector<const Argument*> arguments_of_attention(const exported::Node& node) {
  static constexpr std::array kNames = {"query",     "key",       "value", "attn_mask",
                                        "dropout_p", "is_causal", "scale", "enable_gqa"};
  std::vector<const Argument*> arguments(kNames.size(), nullptr);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto found = std::find(kNames.begin(), kNames.end(), node.inputs[i].name);
    arguments.at(found == kNames.end() ? i : static_cast<size_t>(found - kNames.begin())) =
        &node.inputs[i].value;
  }
  return arguments;
}

std::vector<const Argument*> arguments_in_order(const exported::Node& node) {
  std::vector<const Argument*> arguments;
  for (const auto& input : node.inputs) arguments.push_back(&input.value);
  return arguments;
}

/// A normalisation without running statistics takes those of its input in evaluation, too.
bool lacks_running_statistics(std::string_view target,
                              const std::vector<const Argument*>& arguments) {
  return keeps_running_statistics(target) &&
         (arguments.size() < 4 || arguments[3] == nullptr ||
          std::holds_alternative<exported::NoneArgument>(*arguments[3]));
}

}  // namespace

OperatorCall::OperatorCall(const Step& step, const FlatProgram& program,
                           const std::function<size_t(const std::string&)>& slot_of,
                           uint64_t ordinal)
    : team_(step.team),
      gradient_(step.gradient),
      handle_(find_operator(step.node.target)),
      ordinal_(step.ordinal.value_or(ordinal)) {
  const exported::Node& node = step.node;
  choose_kind(node);
  const std::vector<const Argument*> arguments = handle_ ? matched(node, handle_->schema())
                                                 : kind_ == Kind::Team
                                                     ? arguments_in_order(node)
                                                     : arguments_of_attention(node);
  for (size_t i = 0; i < arguments.size(); ++i) {
    constants_.push_back(place(i, arguments[i], program, slot_of));
    if (handle_) note_meaning(i, node, arguments);
  }
  // What is written out here (attention) may have other strides than in PyTorch, where the exporter
  // saw that a view is possible. The arguments are the same.
  if (node.target == "torch.ops.aten.view.default")
    handle_ = find_operator("torch.ops.aten.reshape.default");
  for (const Argument& output : node.outputs) {
    std::vector<std::optional<size_t>> slots;
    for (const std::string& name : tensor_names(output)) slots.emplace_back(slot_of(name));
    outputs_.push_back(std::move(slots));
  }
}

void OperatorCall::choose_kind(const exported::Node& node) {
  const std::string_view target = node.target;
  if (team_ && team_->kind == TeamStep::Kind::Lstm) {
    kind_ = Kind::Recurrent;
    alone_ = lone_team(*team_);
  } else if (team_ && team_->kind != TeamStep::Kind::WholeMask) {
    kind_ = Kind::Team;
  } else if (is(target, kAttention) && (!handle_ || is_positive(node, "dropout_p", 4))) {
    kind_ = Kind::Attention;
  } else if (is(target, "dropout") || is(target, "dropout_")) {
    kind_ = Kind::Dropout;
    in_place_ = is(target, "dropout_");
  } else if (is(target, "feature_dropout") || is(target, "feature_dropout_")) {
    kind_ = Kind::FeatureDropout;
    in_place_ = is(target, "feature_dropout_");
  } else if (is(target, "batch_norm")) {
    kind_ = Kind::BatchNorm;
  } else if (TORCH_VERSION_MAJOR < 2 && is(target, "gelu")) {
    kind_ = Kind::Gelu;
  } else if (handle_ && is(target, "linear")) {
    kind_ = Kind::Linear;
  } else if (draws_uniform(target)) {
    kind_ = Kind::Uniform;
  } else if (draws_normal(target)) {
    kind_ = Kind::Normal;
  } else if (is_recurrent_with_dropout(node)) {
    kind_ = Kind::Recurrent;
  } else if (TORCH_VERSION_MAJOR < 2 && written_out(target) != nullptr) {
    kind_ = Kind::Written;
    written_ = written_out(target);
  }
}

const c10::Argument* OperatorCall::wanted(size_t argument) const {
  return handle_ ? &handle_->schema().arguments()[argument] : nullptr;
}

c10::IValue OperatorCall::place(size_t argument, const Argument* given, const FlatProgram& program,
                                const std::function<size_t(const std::string&)>& slot_of) {
  const c10::Argument* const schema = wanted(argument);
  const c10::Type& type = schema != nullptr ? *schema->type() : *c10::AnyType::get();
  if (schema != nullptr && inner_type(type).kind() == c10::TypeKind::GeneratorType) {
    generator_ = argument;
    return {};
  }
  if (given == nullptr) {
    if (schema != nullptr && schema->default_value()) return *schema->default_value();
    return {};
  }
  if (const auto* tensor = std::get_if<TensorArgument>(given)) {
    tensors_.push_back({argument, slot_of(tensor->name)});
    return {};
  }
  if (const auto* list = std::get_if<std::vector<TensorArgument>>(given)) {
    const bool optional = schema != nullptr && is_list_of(type, c10::TypeKind::TensorType) &&
                          inner_type(type).containedType(0)->kind() == c10::TypeKind::OptionalType;
    ListPlace place{argument, {}, optional};
    for (const TensorArgument& one : *list) place.slots.emplace_back(slot_of(one.name));
    lists_.push_back(std::move(place));
    return {};
  }
  if (const auto* some = std::get_if<std::vector<std::optional<TensorArgument>>>(given)) {
    ListPlace place{argument, {}, true};
    for (const auto& one : *some)
      place.slots.push_back(one ? std::optional<size_t>(slot_of(one->name)) : std::nullopt);
    lists_.push_back(std::move(place));
    return {};
  }
  const bool is_list = std::holds_alternative<std::vector<exported::SymIntArgument>>(*given);
  if (is_list || std::holds_alternative<exported::SymIntArgument>(*given)) {
    const bool is_tensor =
        schema != nullptr && inner_type(type).kind() == c10::TypeKind::TensorType;
    sizes_.push_back({argument, sizes_in(*given, program), is_list, is_tensor});
    return {};
  }
  return constant(*given, type);
}

void OperatorCall::note_meaning(size_t argument, const exported::Node& node,
                                const std::vector<const Argument*>& arguments) {
  const c10::Argument& schema = *wanted(argument);
  const std::string& name = schema.name();
  c10::IValue& value = constants_[argument];
  if (inner_type(*schema.type()).kind() == c10::TypeKind::DeviceObjType &&
      (value.isDevice() || is_made_of_nothing(node)))
    devices_.push_back(argument);
  if (name == "sparse" && value.isBool())
    value = false;  // gradients of embeddings: the same numbers, and all steps can add them
  const bool is_flag = name == "training" || name == "train" || name == "use_input_stats";
  if (is_flag && value.isBool() && value.toBool() &&
      !lacks_running_statistics(node.target, arguments))
    training_flags_.push_back(argument);
}

bool OperatorCall::normalises_batch() const {
  constexpr size_t kTraining = 5;
  return kind_ == Kind::BatchNorm && constants_.size() > kTraining &&
         constants_[kTraining].isBool() && constants_[kTraining].toBool();
}

std::vector<size_t> OperatorCall::touched() const {
  std::vector<size_t> slots;
  for (const TensorPlace& place : tensors_) slots.push_back(place.slot);
  const auto add = [&](const std::vector<std::optional<size_t>>& some) {
    for (const auto& slot : some) {
      if (slot) slots.push_back(*slot);
    }
  };
  for (const ListPlace& place : lists_) add(place.slots);
  for (const auto& output : outputs_) add(output);
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

void OperatorCall::fill(std::vector<c10::IValue>& stack, const std::vector<at::Tensor>& values,
                        const CallContext& context) const {
  for (const TensorPlace& place : tensors_) stack[place.argument] = values[place.slot];
  for (const ListPlace& place : lists_) {
    if (place.optional) {
      c10::List<model::OptionalTensor> list;
      for (const auto& slot : place.slots)
        list.push_back(slot ? model::OptionalTensor(values[*slot]) : model::OptionalTensor());
      stack[place.argument] = std::move(list);
    } else {
      c10::List<at::Tensor> list;
      for (const auto& slot : place.slots) list.push_back(values[*slot]);
      stack[place.argument] = std::move(list);
    }
  }
  for (const SizePlace& place : sizes_) {
    if (place.is_list) {
      c10::List<int64_t> list;
      for (const SizeExpression& size : place.sizes)
        list.push_back(size.evaluate(*context.symbols));
      stack[place.argument] = std::move(list);
    } else {
      const int64_t size = place.sizes.front().evaluate(*context.symbols);
      stack[place.argument] = place.is_tensor ? c10::IValue(wrapped(size)) : c10::IValue(size);
    }
  }
  if (!context.forward->training) {
    for (const size_t flag : training_flags_) stack[flag] = false;
  }
  for (const size_t argument : devices_) stack[argument] = context.forward->device;
  if (generator_) stack[*generator_] = seeded(context, ordinal_);
}

void OperatorCall::run_recurrent(std::vector<c10::IValue>& stack,
                                 const CallContext& context) const {
  // input, states (two of an lstm as a list), weights, has_biases, layers, dropout, train,
  // bidirectional, batch_first
  const int64_t layers = stack[4].toInt();
  const bool drops = context.forward->training && stack[6].toBool();
  const double probability = drops ? stack[5].toDouble() : 0;
  const int64_t directions = stack[7].toBool() ? 2 : 1;
  const std::vector<at::Tensor> weights = stack[2].toTensorVector();
  const auto each = std::ssize(weights) / layers;
  const bool is_list = stack[1].isTensorList();
  const std::vector<at::Tensor> states =
      is_list ? stack[1].toTensorVector() : std::vector<at::Tensor>{stack[1].toTensor()};
  std::vector<std::vector<at::Tensor>> last(states.size());
  model::Team* const team = context.forward->team != nullptr ? context.forward->team : alone_.get();
  at::Tensor values = stack[0].toTensor();
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<at::Tensor> own;
    for (const at::Tensor& state : states)
      own.push_back(state.narrow(0, layer * directions, directions));
    const auto first = weights.begin() + layer * each;
    std::vector<c10::IValue> call = stack;
    call[0] = values;
    call[1] = is_list ? c10::IValue(own) : c10::IValue(own.front());
    call[2] = std::vector<at::Tensor>(first, first + each);
    call[4] = int64_t{1};
    call[5] = 0.0;
    if (team_)
      run_lstm_of_units(*team_, call, *team);
    else
      handle_->callBoxed(call);
    values = call[0].toTensor();
    for (size_t s = 0; s < last.size(); ++s) last[s].push_back(call[s + 1].toTensor());
    if (layer + 1 == layers) break;
    const auto ordinal = derive_seed(ordinal_, static_cast<uint64_t>(layer));
    if (probability > 0)
      values = values * dropout_mask(values.sizes(), values, probability, seeded(context, ordinal));
    if (team_) values = model::sum_backward(values, *team);  // members read all of it
  }
  stack = {values};
  for (const std::vector<at::Tensor>& of_layers : last) stack.emplace_back(at::cat(of_layers, 0));
}

at::Tensor OperatorCall::mask(std::vector<int64_t> sizes, const at::Tensor& like,
                              double probability, const CallContext& context) const {
  if (team_) sizes[team_->dimension] = team_->whole;
  const at::Tensor drawn = dropout_mask(sizes, like, probability, seeded(context, ordinal_));
  return team_ ? own_runs(drawn, *team_) : drawn;
}

void OperatorCall::run_special(std::vector<c10::IValue>& stack, const CallContext& context) const {
  const bool training = context.forward->training;
  if (kind_ == Kind::Uniform || kind_ == Kind::Normal) {
    // The operator itself takes no generator: its numbers are drawn again.
    handle_->callBoxed(stack);
    const at::Tensor result = stack.front().toTensor();
    if (kind_ == Kind::Uniform)
      result.uniform_(0, 1, seeded(context, ordinal_));
    else
      result.normal_(0, 1, seeded(context, ordinal_));
    return;
  }
  if (kind_ == Kind::Recurrent) {
    if (team_ || (training && stack[6].toBool()))
      run_recurrent(stack, context);
    else
      handle_->callBoxed(stack);
    return;
  }
  if (kind_ == Kind::Written) {
    stack = written_(stack);
    return;
  }
  if (kind_ == Kind::Team) {
    stack = {run_team_step(*team_, stack, context.forward->team)};
    return;
  }
  if (kind_ == Kind::Gelu) {
    stack = {model::gelu(stack[0].toTensor(), std::string(stack[1].toStringRef()))};
    return;
  }
  if (kind_ == Kind::Linear) {
    const at::Tensor bias = stack[2].isNone() ? at::Tensor() : stack[2].toTensor();
    const at::Tensor weight = stack[1].toTensor();
    const bool is_packed = weight.scalar_type() == at::kChar;  // StoredConstant::Form::Int8
    stack = {is_packed ? model::int8_linear(stack[0].toTensor(), weight, bias)
                       : model::linear(stack[0].toTensor(), weight, bias)};
    return;
  }
  if (kind_ == Kind::Attention) {
    const double probability = stack[4].isNone() ? 0 : stack[4].toScalar().toDouble();
    at::Tensor keep;
    if (training && probability > 0) {
      const at::Tensor query = stack[0].toTensor();
      std::vector<int64_t> sizes = query.sizes().vec();
      sizes.back() = stack[1].toTensor().size(-2);
      keep = mask(std::move(sizes), query, probability, context);
    }
    stack = {attention(stack, keep)};
    return;
  }
  // input, probability, train
  const at::Tensor input = stack[0].toTensor();
  const double probability = stack[1].toScalar().toDouble();
  if (!training || !stack[2].toBool() || probability == 0) {
    stack = {in_place_ ? input : input.view_as(input)};
    return;
  }
  std::vector<int64_t> sizes = input.sizes().vec();
  if (kind_ == Kind::FeatureDropout) std::fill(sizes.begin() + 2, sizes.end(), 1);
  const at::Tensor drawn = mask(std::move(sizes), input, probability, context);
  stack = {in_place_ ? at::Tensor(input).mul_(drawn) : at::mul(input, drawn)};
}

void OperatorCall::take_results(const std::vector<c10::IValue>& stack,
                                std::vector<at::Tensor>& values) const {
  for (size_t i = 0; i < outputs_.size() && i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      if (outputs_[i].size() == 1 && outputs_[i][0]) values[*outputs_[i][0]] = stack[i].toTensor();
    } else if (stack[i].isTensorList()) {
      const auto list = stack[i].toTensorVector();
      if (list.size() != outputs_[i].size()) {
        throw RuntimeError(fmt::format("{} made {} tensors, expected {}",
                                       handle_ ? handle_->schema().name() : "an operator",
                                       list.size(), outputs_[i].size()));
      }
      for (size_t k = 0; k < list.size(); ++k) {
        if (outputs_[i][k]) values[*outputs_[i][k]] = list[k];
      }
    }
  }
}

void OperatorCall::run(std::vector<at::Tensor>& values, const CallContext& context) const {
  std::vector<c10::IValue> stack = constants_;
  fill(stack, values, context);
  {
    std::optional<at::NoGradGuard> no_grad;
    if (!gradient_) no_grad.emplace();
    if (kind_ == Kind::BatchNorm && context.forward->training) check_batch_norm(stack);
    if (kind_ == Kind::Plain || kind_ == Kind::BatchNorm)
      handle_->callBoxed(stack);
    else
      run_special(stack, context);
  }
  take_results(stack, values);
  for (const size_t slot : frees) values[slot] = at::Tensor();
}

}  // namespace penstock::imported
