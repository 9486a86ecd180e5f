#include "penstock/imported/operator_arguments.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>

#include "penstock/imported/stored_values.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

using exported::Argument;
using exported::TensorArgument;

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

namespace {

SizeExpression size_of(const exported::SymIntArgument& argument, const FlatProgram& program) {
  if (const auto* number = std::get_if<int64_t>(&argument.value))
    return SizeExpression(exported::SymbolicInt{.value = *number});
  const auto& name = std::get<std::string>(argument.value);
  const auto found = program.sizes.find(name);
  if (found == program.sizes.end())
    throw ConfigError(fmt::format("the size '{}' is not described", printable(name)));
  return SizeExpression(found->second);
}

}  // namespace

std::vector<SizeExpression> sizes_in(const Argument& argument, const FlatProgram& program) {
  std::vector<SizeExpression> sizes;
  if (const auto* one = std::get_if<exported::SymIntArgument>(&argument)) {
    sizes.push_back(size_of(*one, program));
  } else if (const auto* many = std::get_if<std::vector<exported::SymIntArgument>>(&argument)) {
    for (const auto& size : *many) sizes.push_back(size_of(size, program));
  }
  return sizes;
}

namespace {

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

}  // namespace

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

namespace {

template <class T, class From>
c10::List<T> list_of(const std::vector<From>& values) {
  c10::List<T> list;
  for (const From value : values) list.push_back(static_cast<T>(value));
  return list;
}

/// Converts what an argument holds.
class AsWanted {
 public:
  explicit AsWanted(const c10::Type& type) : type_(type) {}

  c10::IValue operator()(const exported::NoneArgument&) const { return {}; }
  c10::IValue operator()(int64_t value) const { return number(value); }
  c10::IValue operator()(double value) const { return number(value); }
  c10::IValue operator()(bool value) const {
    return is(c10::TypeKind::TensorType) ? c10::IValue(wrapped(value)) : c10::IValue(value);
  }
  c10::IValue operator()(const std::vector<int64_t>& values) const {
    if (is_list_of(type_, c10::TypeKind::FloatType)) return list_of<double>(values);
    return list_of<int64_t>(values);
  }
  c10::IValue operator()(const std::vector<double>& values) const {
    return list_of<double>(values);
  }
  c10::IValue operator()(const std::vector<bool>& values) const { return list_of<bool>(values); }
  c10::IValue operator()(const std::string& value) const { return value; }
  c10::IValue operator()(exported::ScalarType value) const {
    return static_cast<int64_t>(torch_type(value));
  }
  c10::IValue operator()(exported::MemoryFormat value) const {
    return static_cast<int64_t>(memory_format(value));
  }
  c10::IValue operator()(const exported::LayoutArgument& value) const {
    constexpr int64_t kStrided = 7;
    if (value.layout != kStrided) throw ConfigError("sparse tensors are not supported");
    return static_cast<int64_t>(at::kStrided);
  }
  c10::IValue operator()(const exported::Device&) const {
    return c10::Device(c10::kCPU);  // that of the worker takes its place
  }
  c10::IValue operator()(const exported::SymFloatArgument&) const { return refuse_fraction(); }
  c10::IValue operator()(const exported::SymBoolArgument&) const { return refuse_fraction(); }
  template <class Other>
  c10::IValue operator()(const Other&) const {
    throw ConfigError("an argument of this kind is not supported");
  }

 private:
  bool is(c10::TypeKind kind) const { return type_.kind() == kind; }

  c10::IValue number(const at::Scalar& value) const {
    if (is(c10::TypeKind::TensorType)) return wrapped(value);
    if (is(c10::TypeKind::FloatType)) return value.toDouble();
    if (is_list_of(type_, c10::TypeKind::FloatType)) return c10::List<double>({value.toDouble()});
    if (is(c10::TypeKind::ListType)) return c10::List<int64_t>({value.toLong()});
    return c10::IValue(value);
  }

  [[noreturn]] static c10::IValue refuse_fraction() {
    throw ConfigError("a fraction or truth value made of the batch size is not supported");
  }

  const c10::Type& type_;
};

}  // namespace

c10::IValue constant(const Argument& argument, const c10::Type& wanted) {
  return std::visit(AsWanted(inner_type(wanted)), argument);
}

}  // namespace penstock::imported
