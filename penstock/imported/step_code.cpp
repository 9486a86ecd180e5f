#include "penstock/imported/step_code.h"

#include <fmt/format.h>

#include <type_traits>
#include <variant>
#include <vector>

namespace penstock::imported {

namespace {

std::string text_of(const exported::SymbolicInt& size) {
  return size.is_number() ? fmt::to_string(size.value) : size.expression;
}

/// An argument as text.
class ArgumentText {
 public:
  ArgumentText(const FlatProgram& program, const std::function<size_t(const std::string&)>& slot_of)
      : program_(program), slot_of_(slot_of) {}

  std::string operator()(const exported::NoneArgument&) const { return "none"; }
  std::string operator()(const exported::TensorArgument& tensor) const {
    return fmt::format("%{}", slot_of_(tensor.name));
  }
  std::string operator()(const exported::SymIntArgument& size) const {
    if (const auto* number = std::get_if<int64_t>(&size.value)) return fmt::to_string(*number);
    const auto& name = std::get<std::string>(size.value);
    const auto found = program_.sizes.find(name);
    return found == program_.sizes.end() ? name : text_of(found->second);
  }
  std::string operator()(const exported::SymFloatArgument& number) const {
    return std::visit([](const auto& value) { return fmt::format("{}", value); }, number.value);
  }
  std::string operator()(const exported::SymBoolArgument& flag) const {
    return std::visit([](const auto& value) { return fmt::format("{}", value); }, flag.value);
  }
  std::string operator()(const exported::LayoutArgument& layout) const {
    return fmt::format("layout {}", layout.layout);
  }
  std::string operator()(const exported::Device& device) const { return device.type; }
  std::string operator()(const exported::GraphArgument& graph) const { return graph.name; }
  template <class Value>
  std::string operator()(const std::optional<Value>& value) const {
    return value ? (*this)(*value) : "none";
  }
  template <class Value>
  std::string operator()(const std::vector<Value>& values) const {
    std::string text = "[";
    for (const auto& value : values) text += (*this)(static_cast<Value>(value)) + ' ';
    return text + ']';
  }
  template <class Value>
  std::string operator()(const Value& value) const {
    if constexpr (std::is_enum_v<Value>)
      return fmt::format("enum {}", static_cast<int>(value));
    else
      return fmt::format("{}", value);
  }

 private:
  const FlatProgram& program_;
  const std::function<size_t(const std::string&)>& slot_of_;
};

}  // namespace

std::string code_of(const Step& step, const FlatProgram& program,
                    const std::function<size_t(const std::string&)>& slot_of) {
  const ArgumentText text(program, slot_of);
  std::string code =
      fmt::format("{}{}", step.node.target, step.gradient ? "" : " without gradient");
  for (const exported::NamedArgument& argument : step.node.inputs)
    code += fmt::format(" {}={}", argument.name, std::visit(text, argument.value));
  for (const exported::Argument& output : step.node.outputs)
    code += fmt::format(" -> {}", std::visit(text, output));
  if (step.team) {
    code += fmt::format(" part of {} along dimension {}:", step.team->whole, step.team->dimension);
    for (const model::TensorPart::Run& run : step.team->runs)
      code += fmt::format(" {}+{}", run.begin, run.length);
    for (const int64_t length : step.team->lengths) code += fmt::format(" of {}", length);
  }
  return code + '\n';
}

std::string layout_text(const std::string& tensor, const FlatProgram& program) {
  const auto found = program.tensors.find(tensor);
  if (found == program.tensors.end()) return {};
  const exported::TensorMeta& meta = found->second;
  std::string text(to_string(meta.type));
  for (const exported::SymbolicInt& size : meta.sizes) text += ' ' + text_of(size);
  text += " strides";
  for (const exported::SymbolicInt& stride : meta.strides) text += ' ' + text_of(stride);
  return text;
}

}  // namespace penstock::imported
