#include "penstock/imported/operator_call.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <variant>

#include "penstock/imported/stored_values.h"
#include "penstock/model/device/devices.h"
#include "penstock/model/layers/linear_product.h"
#include "penstock/model/torch_compat.h"
#include "penstock/util/error.h"
#include "penstock/util/printable.h"
#include "penstock/util/rng.h"

namespace penstock::imported {

using exported::Argument;
using exported::TensorArgument;

namespace {

/// "torch.ops.aten.add.Tensor" -> {"aten::add", "Tensor"}; nothing for another target.
std::optional<c10::OperatorName> operator_name(std::string_view target) {
  constexpr std::string_view kOps = "torch.ops.";
  if (!target.starts_with(kOps)) return std::nullopt;
  target.remove_prefix(kOps.size());
  const size_t first = target.find('.');
  const size_t last = target.rfind('.');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const std::string_view overload = target.substr(last + 1);
  return c10::OperatorName(
      fmt::format("{}::{}", target.substr(0, first), target.substr(first + 1, last - first - 1)),
      overload == "default" ? "" : std::string(overload));
}

std::optional<c10::OperatorHandle> find_operator(const std::string& target) {
  const auto name = operator_name(target);
  if (!name) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema(*name);
  return found ? std::optional<c10::OperatorHandle>(*found) : std::nullopt;
}

bool is(std::string_view target, std::string_view name) {
  constexpr std::string_view kAten = "torch.ops.aten.";
  return target.starts_with(kAten) && target.substr(kAten.size()).starts_with(name) &&
         target.substr(kAten.size() + name.size()).starts_with('.');
}

constexpr std::string_view kAttention = "scaled_dot_product_attention";

/// Operators of which a file from elsewhere must not make use: they open files, or reach memory
/// beyond their tensors.
bool is_forbidden(std::string_view target) {
  for (const std::string_view name :
       {"from_file", "_reshape_alias", "set_", "set_data", "resize_", "resize_as_",
        "_resize_output_", "_make_dual", "_nested_view_from_buffer", "_unsafe_index",
        "_unsafe_index_put", "_unsafe_masked_index", "segment_reduce"}) {
    if (is(target, name)) return true;
  }
  // Gradients are computed here; those of a file may name places outside of their tensors.
  return target.find("_backward.") != std::string_view::npos;
}

/// Operators that draw numbers without taking a generator, and that have no form of ours.
bool is_unseeded(std::string_view target) {
  for (const std::string_view name :
       {"alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_",
        "native_dropout", "randint", "randint_like", "randperm", "rrelu", "rrelu_"}) {
    if (is(target, name)) return true;
  }
  return false;
}

bool draws_uniform(std::string_view target) {
  return is(target, "rand") || is(target, "rand_like");
}
bool draws_normal(std::string_view target) {
  return is(target, "randn") || is(target, "randn_like");
}

bool is_dropout(std::string_view target) {
  return is(target, "dropout") || is(target, "feature_dropout");
}

/// Outputs may be an input itself or a view of it, though the schema does not say so.
bool may_hand_through(std::string_view target) {
  static constexpr std::array kNames = {
      "atleast_1d", "atleast_2d", "atleast_3d",  "broadcast_tensors", "cartesian_prod", "einsum",
      "meshgrid",   "reshape_as", "sum_to_size", "to_dense",          "type_as"};
  return is_dropout(target) || std::any_of(kNames.begin(), kNames.end(),
                                           [&](std::string_view name) { return is(target, name); });
}

/// Whether the operator averages statistics of its input into its arguments 3 and 4, though the
/// schema does not say so.
bool keeps_running_statistics(std::string_view target) {
  return is(target, "batch_norm") || is(target, "instance_norm") ||
         is(target, "native_batch_norm") || is(target, "cudnn_batch_norm") ||
         is(target, "miopen_batch_norm");
}

bool is_view_only(std::string_view target) {
  static constexpr std::array kViews = {
      "alias",     "chunk",   "contiguous", "detach",           "diagonal",  "expand",
      "expand_as", "flatten", "movedim",    "narrow",           "permute",   "reshape",
      "select",    "slice",   "split",      "split_with_sizes", "squeeze",   "swapaxes",
      "t",         "to",      "transpose",  "unbind",           "unflatten", "unsqueeze",
      "view",      "view_as"};
  return std::any_of(kViews.begin(), kViews.end(),
                     [&](std::string_view name) { return is(target, name); });
}

/// Per argument of the schema the node's, or nullptr for the default.
std::vector<const Argument*> matched(const exported::Node& node,
                                     const c10::FunctionSchema& schema) {
  std::vector<const Argument*> result(schema.arguments().size(), nullptr);
  size_t position = 0;
  for (const exported::NamedArgument& input : node.inputs) {
    const auto index = schema.argumentIndexWithName(input.name);
    if (index) {
      result[static_cast<size_t>(*index)] = &input.value;
    } else if (!input.keyword && position < result.size()) {
      result[position] = &input.value;
    } else {
      throw ConfigError(fmt::format("{} has no argument '{}'", schema.name(), input.name));
    }
    ++position;
  }
  return result;
}

std::vector<std::string> tensor_names(const Argument& argument) {
  if (const auto* one = std::get_if<TensorArgument>(&argument)) return {one->name};
  std::vector<std::string> names;
  if (const auto* many = std::get_if<std::vector<TensorArgument>>(&argument)) {
    for (const TensorArgument& one : *many) names.push_back(one.name);
  } else if (const auto* some =
                 std::get_if<std::vector<std::optional<TensorArgument>>>(&argument)) {
    for (const auto& one : *some) {
      if (one) names.push_back(one->name);
    }
  }
  return names;
}

SizeExpression size_of(const exported::SymIntArgument& argument, const FlatProgram& program) {
  if (const auto* number = std::get_if<int64_t>(&argument.value))
    return SizeExpression(exported::SymbolicInt{.value = *number});
  const auto& name = std::get<std::string>(argument.value);
  const auto found = program.sizes.find(name);
  if (found == program.sizes.end())
    throw ConfigError(fmt::format("the size '{}' is not described", printable(name)));
  return SizeExpression(found->second);
}

/// The sizes that an argument is made of; empty for another kind of argument.
std::vector<SizeExpression> sizes_in(const Argument& argument, const FlatProgram& program) {
  std::vector<SizeExpression> sizes;
  if (const auto* one = std::get_if<exported::SymIntArgument>(&argument)) {
    sizes.push_back(size_of(*one, program));
  } else if (const auto* many = std::get_if<std::vector<exported::SymIntArgument>>(&argument)) {
    for (const auto& size : *many) sizes.push_back(size_of(size, program));
  }
  return sizes;
}

at::MemoryFormat memory_format(exported::MemoryFormat format) {
  switch (format) {
    case exported::MemoryFormat::Contiguous:
      return at::MemoryFormat::Contiguous;
    case exported::MemoryFormat::ChannelsLast:
      return at::MemoryFormat::ChannelsLast;
    case exported::MemoryFormat::ChannelsLast3d:
      return at::MemoryFormat::ChannelsLast3d;
    default:
      return at::MemoryFormat::Preserve;
  }
}

/// A number where the operator takes a tensor, as PyTorch passes `x + 1`.
at::Tensor wrapped(const at::Scalar& number) {
  at::Tensor tensor =
      at::scalar_tensor(number, at::TensorOptions().dtype(number.isIntegral(false) ? at::kLong
                                                          : number.isBoolean()     ? at::kBool
                                                                                   : at::kDouble));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

const c10::Type& inner_type(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) return *type.containedType(0);
  return type;
}

bool is_list_of(const c10::Type& type, c10::TypeKind kind) {
  if (type.kind() != c10::TypeKind::ListType) return false;
  return inner_type(*type.containedType(0)).kind() == kind;
}

/// A constant argument as the schema's type wants it.
c10::IValue constant(const Argument& argument, const c10::Type& wanted) {
  const c10::Type& type = inner_type(wanted);
  const c10::TypeKind kind = type.kind();
  const auto as_number = [&](const at::Scalar& number) -> c10::IValue {
    if (kind == c10::TypeKind::TensorType) return wrapped(number);
    if (kind == c10::TypeKind::FloatType) return number.toDouble();
    if (is_list_of(type, c10::TypeKind::FloatType)) return c10::List<double>({number.toDouble()});
    if (kind == c10::TypeKind::ListType) return c10::List<int64_t>({number.toLong()});
    return c10::IValue(number);
  };
  return std::visit(
      [&](const auto& value) -> c10::IValue {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, exported::NoneArgument>) {
          return {};
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
          return as_number(value);
        } else if constexpr (std::is_same_v<T, bool>) {
          return kind == c10::TypeKind::TensorType ? c10::IValue(wrapped(value))
                                                   : c10::IValue(value);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          if (is_list_of(type, c10::TypeKind::FloatType)) {
            c10::List<double> list;
            for (const int64_t one : value) list.push_back(static_cast<double>(one));
            return list;
          }
          c10::List<int64_t> list;
          for (const int64_t one : value) list.push_back(one);
          return list;
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          c10::List<double> list;
          for (const double one : value) list.push_back(one);
          return list;
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          c10::List<bool> list;
          for (const bool one : value) list.push_back(one);
          return list;
        } else if constexpr (std::is_same_v<T, std::string>) {
          return value;
        } else if constexpr (std::is_same_v<T, exported::ScalarType>) {
          return static_cast<int64_t>(torch_type(value));
        } else if constexpr (std::is_same_v<T, exported::MemoryFormat>) {
          return static_cast<int64_t>(memory_format(value));
        } else if constexpr (std::is_same_v<T, exported::LayoutArgument>) {
          if (value.layout != 7) throw ConfigError("sparse tensors are not supported");
          return static_cast<int64_t>(at::kStrided);
        } else if constexpr (std::is_same_v<T, exported::Device>) {
          return c10::Device(c10::kCPU);  // that of the worker takes its place
        } else if constexpr (std::is_same_v<T, exported::SymFloatArgument> ||
                             std::is_same_v<T, exported::SymBoolArgument>) {
          throw ConfigError("a fraction or truth value made of the batch size is not supported");
        } else {
          throw ConfigError("an argument of this kind is not supported");
        }
      },
      argument);
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool returns_alias(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) {
                       const auto* alias = result.alias_info();
                       return alias != nullptr;
                     });
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

/// Whether a constant argument of that name is a number above 0.
bool is_positive(const exported::Node& node, std::string_view name, size_t position) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].name != name && !(node.inputs[i].name.empty() && i == position)) continue;
    if (const auto* number = std::get_if<double>(&node.inputs[i].value)) return *number > 0;
    if (const auto* number = std::get_if<int64_t>(&node.inputs[i].value)) return *number > 0;
  }
  return false;
}

bool is_recurrent(std::string_view target) {
  return is(target, "lstm") || is(target, "gru") || is(target, "rnn_tanh") ||
         is(target, "rnn_relu");
}

/// The overload for packed sequences, whose arguments come in another order.
bool is_packed_recurrent(std::string_view target) {
  return is_recurrent(target) && target.ends_with(".data");
}

/// Dropout between layers, which the operator itself would draw without our seed.
bool is_recurrent_with_dropout(const exported::Node& node) {
  return is_recurrent(node.target) && !is_packed_recurrent(node.target) &&
         is_positive(node, "dropout", 5);
}

/// Whether no tensor goes in, so that none says on which device the result is.
bool is_made_of_nothing(const exported::Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const auto& input) { return tensor_names(input.value).empty(); });
}

/// Facts that need no schema, of an operator that only we have here.
StepFacts facts_without_schema(const exported::Node& node, const FlatProgram& program) {
  StepFacts facts;
  for (const auto& input : node.inputs) {
    for (const std::string& name : tensor_names(input.value)) add_once(facts.reads, name);
    for (SizeExpression& size : sizes_in(input.value, program)) {
      if (!size.is_number()) facts.sizes.push_back(std::move(size));
    }
  }
  return facts;
}

void add_outputs(StepFacts& facts, const exported::Node& node) {
  for (const Argument& output : node.outputs) {
    const std::vector<std::string> names = tensor_names(output);
    if (names.empty() && !std::holds_alternative<exported::NoneArgument>(output))
      throw ConfigError("an output that is no tensor is not supported");
    facts.outputs.insert(facts.outputs.end(), names.begin(), names.end());
  }
}

StepFacts checked_facts(const Step& step, const FlatProgram& program) {
  const exported::Node& node = step.node;
  const auto handle = find_operator(node.target);
  const bool attention = is(node.target, kAttention);
  if (!handle && !attention) {
    throw ConfigError(fmt::format("this libtorch has no operator {}", printable(node.target)));
  }
  if (node.target.starts_with("torch.ops.") && !node.target.starts_with("torch.ops.aten."))
    throw ConfigError(fmt::format("{} is none of ATen's operators", printable(node.target)));
  if (is_forbidden(node.target))
    throw ConfigError(fmt::format("{} is not allowed in a file", printable(node.target)));
  const bool sorts = std::any_of(node.inputs.begin(), node.inputs.end(), [](const auto& input) {
    return input.name == "sorter" && !std::holds_alternative<exported::NoneArgument>(input.value);
  });
  if (is(node.target, "searchsorted") && sorts)
    throw ConfigError("searchsorted with an order of its own (sorter) is not allowed in a file");
  if (is_unseeded(node.target)) {
    throw ConfigError(
        fmt::format("{} draws random numbers that cannot be repeated", printable(node.target)));
  }
  if (is_packed_recurrent(node.target) && is_positive(node, "dropout", 7)) {
    throw ConfigError(
        "dropout between the layers of a recurrent network is not supported for packed sequences");
  }
  StepFacts facts;
  if (!handle) {
    facts = facts_without_schema(node, program);
    add_outputs(facts, node);
    facts.is_random = is_positive(node, "dropout_p", 4);
    return facts;
  }
  const c10::FunctionSchema& schema = handle->schema();
  const std::vector<const Argument*> arguments = matched(node, schema);
  const bool alias = returns_alias(schema) || may_hand_through(node.target);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& wanted = schema.arguments()[i];
    if (inner_type(*wanted.type()).kind() == c10::TypeKind::GeneratorType) facts.is_random = true;
    if (arguments[i] == nullptr) {
      if (!wanted.default_value())
        throw ConfigError(fmt::format("the argument '{}' is missing", wanted.name()));
      continue;
    }
    for (SizeExpression& size : sizes_in(*arguments[i], program)) {
      if (!size.is_number()) facts.sizes.push_back(std::move(size));
    }
    const std::vector<std::string> names = tensor_names(*arguments[i]);
    for (const std::string& name : names) {
      add_once(facts.reads, name);
      if (writes(wanted)) add_once(facts.mutated, name);
      if (alias && (wanted.alias_info() != nullptr || may_hand_through(node.target)))
        add_once(facts.aliased, name);
    }
    if (names.empty() && sizes_in(*arguments[i], program).empty())
      constant(*arguments[i], *wanted.type());  // throws where it cannot be converted
  }
  if (keeps_running_statistics(node.target)) {
    for (const size_t i : {3, 4}) {
      if (arguments.size() > i && arguments[i] != nullptr) {
        for (const std::string& name : tensor_names(*arguments[i])) add_once(facts.mutated, name);
      }
    }
  }
  add_outputs(facts, node);
  facts.is_view = is_view_only(node.target);
  facts.is_random = facts.is_random || is_dropout(node.target) || is(node.target, "dropout_") ||
                    is(node.target, "feature_dropout_") || draws_uniform(node.target) ||
                    draws_normal(node.target) || is_recurrent_with_dropout(node) ||
                    (attention && is_positive(node, "dropout_p", 4));
  return facts;
}

at::Generator seeded(const CallContext& context, uint64_t ordinal) {
  return model::installed_devices().generator(context.forward->device,
                                              derive_seed(context.forward->seed, ordinal));
}

/// Zeroes with the given probability, the rest scaled.
at::Tensor dropout_mask(at::IntArrayRef sizes, const at::Tensor& like, double probability,
                        at::Generator generator) {
  at::Tensor mask = at::empty(sizes, like.options().dtype(at::kFloat));
  mask.bernoulli_(1 - probability, std::move(generator));
  if (probability < 1) mask.mul_(1 / (1 - probability));
  return mask.to(like.options());
}

/// query, key, value, mask, dropout, is_causal, scale, enable_gqa as in
/// torch.nn.functional.scaled_dot_product_attention, written out.
at::Tensor attention(const std::vector<c10::IValue>& arguments, const at::Tensor& keep) {
  const at::Tensor query = arguments[0].toTensor();
  at::Tensor key = arguments[1].toTensor();
  at::Tensor value = arguments[2].toTensor();
  if (arguments.size() > 7 && !arguments[7].isNone() && arguments[7].toBool()) {
    key = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
    value = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
  }
  const double scale = arguments.size() > 6 && !arguments[6].isNone()
                           ? arguments[6].toScalar().toDouble()
                           : 1 / std::sqrt(static_cast<double>(query.size(-1)));
  at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
  if (arguments.size() > 5 && !arguments[5].isNone() && arguments[5].toBool()) {
    const at::Tensor visible =
        at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(visible.logical_not(), -INFINITY);
  }
  at::Tensor unseen;  // queries that see nothing: their result is zero
  if (arguments.size() > 3 && !arguments[3].isNone()) {
    const at::Tensor mask = arguments[3].toTensor();
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(mask.logical_not(), -INFINITY)
                                             : scores + mask;
    unseen = (scores == -INFINITY).all(-1, true);
    scores = scores.masked_fill(unseen, 0);
  }
  at::Tensor shares = at::softmax(scores, -1);
  if (unseen.defined()) shares = shares.masked_fill(unseen, 0);
  if (keep.defined()) shares = shares * keep;
  return at::matmul(shares, value);
}

/// In libtorch 1.13 the gradient of gelu is garbage where the gradient that comes in has other
/// strides than the input (oneDNN writes beside it).
class Gelu : public torch::autograd::Function<Gelu> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::string& approximate) {
    context->save_for_backward({input});
    context->saved_data["approximate"] = approximate;
    return at::gelu(input, approximate);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor input = context->get_saved_variables().front();
    return {at::gelu_backward(gradients.front().contiguous(), input.contiguous(),
                              context->saved_data["approximate"].toStringRef()),
            at::Tensor()};
  }
};

/// As torch.nn.functional.batch_norm: one number per channel has no variance, and would make the
/// running one NaN.
void check_batch_norm(const std::vector<c10::IValue>& arguments) {
  const at::Tensor input = arguments[0].toTensor();
  if (!arguments[5].toBool() || input.dim() < 2 || input.numel() > input.size(1)) return;
  throw RuntimeError(
      "batch normalisation needs more than one number per channel in training: take larger "
      "micro-batches");
}

/// A normalisation without running statistics takes those of its input in evaluation, too.
bool lacks_running_statistics(std::string_view target,
                              const std::vector<const Argument*>& arguments) {
  return keeps_running_statistics(target) &&
         (arguments.size() < 4 || arguments[3] == nullptr ||
          std::holds_alternative<exported::NoneArgument>(*arguments[3]));
}

}  // namespace

std::optional<StepFacts> facts_of(const Step& step, const FlatProgram& program, Reasons& reasons) {
  try {
    return checked_facts(step, program);
  } catch (const ConfigError& error) {
    reasons.push_back(fmt::format("{}: {}", place_of(step.node), error.what()));
    return std::nullopt;
  }
}

OperatorCall::OperatorCall(const Step& step, const FlatProgram& program,
                           const std::function<size_t(const std::string&)>& slot_of,
                           uint64_t ordinal)
    : gradient_(step.gradient), handle_(find_operator(step.node.target)), ordinal_(ordinal) {
  const exported::Node& node = step.node;
  std::vector<const Argument*> arguments;
  if (is(node.target, kAttention) && (!handle_ || is_positive(node, "dropout_p", 4))) {
    kind_ = Kind::Attention;
  } else if (is(node.target, "dropout") || is(node.target, "dropout_")) {
    kind_ = Kind::Dropout;
    in_place_ = is(node.target, "dropout_");
  } else if (is(node.target, "feature_dropout") || is(node.target, "feature_dropout_")) {
    kind_ = Kind::FeatureDropout;
    in_place_ = is(node.target, "feature_dropout_");
  } else if (is(node.target, "batch_norm")) {
    kind_ = Kind::BatchNorm;
  } else if (TORCH_VERSION_MAJOR < 2 && is(node.target, "gelu")) {
    kind_ = Kind::Gelu;
  } else if (handle_ && is(node.target, "linear")) {
    kind_ = Kind::Linear;
  } else if (draws_uniform(node.target)) {
    kind_ = Kind::Uniform;
  } else if (draws_normal(node.target)) {
    kind_ = Kind::Normal;
  } else if (is_recurrent_with_dropout(node)) {
    kind_ = Kind::Recurrent;
  }
  if (handle_) {
    arguments = matched(node, handle_->schema());
  } else {
    static constexpr std::array kNames = {"query",     "key",       "value", "attn_mask",
                                          "dropout_p", "is_causal", "scale", "enable_gqa"};
    arguments.resize(kNames.size(), nullptr);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto found = std::find(kNames.begin(), kNames.end(), node.inputs[i].name);
      arguments.at(found == kNames.end() ? i : static_cast<size_t>(found - kNames.begin())) =
          &node.inputs[i].value;
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue value;
    const c10::Argument* wanted = handle_ ? &handle_->schema().arguments()[i] : nullptr;
    const Argument* given = arguments[i];
    if (wanted != nullptr && inner_type(*wanted->type()).kind() == c10::TypeKind::GeneratorType) {
      generator_ = i;
    } else if (given == nullptr) {
      if (wanted != nullptr && wanted->default_value()) value = *wanted->default_value();
    } else if (const auto* tensor = std::get_if<TensorArgument>(given)) {
      tensors_.push_back({i, slot_of(tensor->name)});
    } else if (const auto* list = std::get_if<std::vector<TensorArgument>>(given)) {
      ListPlace place{
          i,
          {},
          wanted != nullptr && is_list_of(*wanted->type(), c10::TypeKind::TensorType) &&
              inner_type(*wanted->type()).containedType(0)->kind() == c10::TypeKind::OptionalType};
      for (const TensorArgument& one : *list) place.slots.emplace_back(slot_of(one.name));
      lists_.push_back(std::move(place));
    } else if (const auto* some = std::get_if<std::vector<std::optional<TensorArgument>>>(given)) {
      ListPlace place{i, {}, true};
      for (const auto& one : *some)
        place.slots.push_back(one ? std::optional<size_t>(slot_of(one->name)) : std::nullopt);
      lists_.push_back(std::move(place));
    } else if (std::vector<SizeExpression> sizes = sizes_in(*given, program);
               std::holds_alternative<exported::SymIntArgument>(*given) ||
               std::holds_alternative<std::vector<exported::SymIntArgument>>(*given)) {
      const bool is_list = std::holds_alternative<std::vector<exported::SymIntArgument>>(*given);
      const bool is_tensor =
          wanted != nullptr && inner_type(*wanted->type()).kind() == c10::TypeKind::TensorType;
      sizes_.push_back({i, std::move(sizes), is_list, is_tensor});
    } else {
      value = wanted != nullptr ? constant(*given, *wanted->type())
                                : constant(*given, *c10::AnyType::get());
    }
    if (wanted != nullptr && inner_type(*wanted->type()).kind() == c10::TypeKind::DeviceObjType &&
        (value.isDevice() || is_made_of_nothing(node)))
      devices_.push_back(i);
    if (wanted != nullptr && wanted->name() == "sparse" && value.isBool())
      value = false;  // gradients of embeddings: the same numbers, and all steps can add them
    constants_.push_back(std::move(value));
    if (wanted != nullptr &&
        (wanted->name() == "training" || wanted->name() == "train" ||
         wanted->name() == "use_input_stats") &&
        constants_.back().isBool() && constants_.back().toBool() &&
        !lacks_running_statistics(node.target, arguments))
      training_flags_.push_back(i);
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
  const double probability = stack[5].toDouble();
  const int64_t directions = stack[7].toBool() ? 2 : 1;
  const std::vector<at::Tensor> weights = stack[2].toTensorVector();
  const auto each = std::ssize(weights) / layers;
  const bool is_list = stack[1].isTensorList();
  const std::vector<at::Tensor> states =
      is_list ? stack[1].toTensorVector() : std::vector<at::Tensor>{stack[1].toTensor()};
  std::vector<std::vector<at::Tensor>> last(states.size());
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
    handle_->callBoxed(call);
    values = call[0].toTensor();
    for (size_t s = 0; s < last.size(); ++s) last[s].push_back(call[s + 1].toTensor());
    if (layer + 1 == layers) break;
    const auto ordinal = derive_seed(ordinal_, static_cast<uint64_t>(layer));
    values = values * dropout_mask(values.sizes(), values, probability, seeded(context, ordinal));
  }
  stack = {values};
  for (const std::vector<at::Tensor>& of_layers : last) stack.emplace_back(at::cat(of_layers, 0));
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
    if (training && stack[6].toBool())
      run_recurrent(stack, context);
    else
      handle_->callBoxed(stack);
    return;
  }
  if (kind_ == Kind::Gelu) {
    stack = {Gelu::apply(stack[0].toTensor(), std::string(stack[1].toStringRef()))};
    return;
  }
  if (kind_ == Kind::Linear) {
    const at::Tensor bias = stack[2].isNone() ? at::Tensor() : stack[2].toTensor();
    stack = {model::linear(stack[0].toTensor(), stack[1].toTensor(), bias)};
    return;
  }
  if (kind_ == Kind::Attention) {
    const double probability = stack[4].isNone() ? 0 : stack[4].toScalar().toDouble();
    at::Tensor keep;
    if (training && probability > 0) {
      const at::Tensor query = stack[0].toTensor();
      std::vector<int64_t> sizes = query.sizes().vec();
      sizes.back() = stack[1].toTensor().size(-2);
      keep = dropout_mask(sizes, query, probability, seeded(context, ordinal_));
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
  const at::Tensor mask = dropout_mask(sizes, input, probability, seeded(context, ordinal_));
  stack = {in_place_ ? at::Tensor(input).mul_(mask) : at::mul(input, mask)};
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
  for (const size_t slot : frees) values[slot] = at::Tensor();
}

}  // namespace penstock::imported
