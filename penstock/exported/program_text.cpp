#include "penstock/exported/program_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>

#include "penstock/util/error.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/printable.h"

namespace penstock::exported {
namespace {

constexpr int kMaxGraphDepth = 20;

const JsonReader& object(const JsonReader& json) {
  if (!json.raw().is_object()) json.fail("expected an object");
  return json;
}

SymbolicInt symbolic_int(const JsonReader& json) {
  if (const auto number = json.find("as_int")) return {.value = number->integer()};
  const JsonReader expression = json.at("as_expr");
  SymbolicInt size{.value = 0, .expression = expression.at("expr_str").text()};
  if (const auto hint = expression.find("hint")) {
    if (const auto number = hint->find("as_int")) size.value = number->integer();
  }
  return size;
}

Device device(const JsonReader& json) {
  Device result{.type = json.at("type").text()};
  if (const auto index = json.find("index")) result.index = index->integer();
  return result;
}

ScalarType scalar_type(const JsonReader& json) {
  const auto type = static_cast<ScalarType>(json.integer(0, 255));
  if (size_of(type) == 0)
    json.fail(fmt::format("unknown type of numbers ({})", static_cast<int>(type)));
  return type;
}

TensorMeta tensor_meta(const JsonReader& json) {
  TensorMeta meta;
  meta.type = scalar_type(json.at("dtype"));
  for (const JsonReader& size : json.at("sizes").elements(64))
    meta.sizes.push_back(symbolic_int(size));
  for (const JsonReader& stride : json.at("strides").elements(64))
    meta.strides.push_back(symbolic_int(stride));
  if (meta.strides.size() != meta.sizes.size())
    json.fail(fmt::format("{} strides for {} sizes", meta.strides.size(), meta.sizes.size()));
  meta.storage_offset = symbolic_int(json.at("storage_offset"));
  meta.requires_grad = json.at("requires_grad").boolean();
  meta.device = device(json.at("device"));
  return meta;
}

/// Infinities are strings.
double real(const JsonReader& json) {
  if (!json.raw().is_string()) return json.number();
  const std::string text = json.text();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  json.fail(fmt::format("expected a number, found \"{}\"", printable(text)));
}

template <typename T>
std::vector<T> list(const JsonReader& json, const std::function<T(const JsonReader&)>& read) {
  std::vector<T> result;
  for (const JsonReader& one : json.elements()) result.push_back(read(one));
  return result;
}

SymIntArgument sym_int(const JsonReader& json) {
  if (const auto name = json.find("as_name")) return {name->text()};
  return {json.at("as_int").integer()};
}
SymFloatArgument sym_float(const JsonReader& json) {
  if (const auto name = json.find("as_name")) return {name->text()};
  return {real(json.at("as_float"))};
}
SymBoolArgument sym_bool(const JsonReader& json) {
  if (const auto name = json.find("as_name")) return {name->text()};
  return {json.at("as_bool").boolean()};
}
TensorArgument tensor(const JsonReader& json) { return {json.at("name").text()}; }
std::optional<TensorArgument> optional_tensor(const JsonReader& json) {
  if (json.find("as_tensor")) return tensor(json.at("as_tensor"));
  if (json.has("as_none")) return std::nullopt;
  json.fail("expected a tensor or none");
}

Graph read_graph(const JsonReader& json, int depth);

Argument argument(const JsonReader& json, int depth) {
  if (!json.raw().is_object() || json.raw().size() != 1)
    json.fail("expected an argument: an object with one key");
  const std::string kind = json.raw().begin().key();
  const JsonReader value = json.at(kind);
  if (kind == "as_none") return NoneArgument{};
  if (kind == "as_tensor") return tensor(value);
  if (kind == "as_tensors") return list<TensorArgument>(value, tensor);
  if (kind == "as_optional_tensors")
    return list<std::optional<TensorArgument>>(value, optional_tensor);
  if (kind == "as_optional_tensor") {
    const auto one = optional_tensor(value);
    return one ? Argument(*one) : Argument(NoneArgument{});
  }
  if (kind == "as_int") return value.integer();
  if (kind == "as_ints")
    return list<int64_t>(value, [](const JsonReader& one) { return one.integer(); });
  if (kind == "as_float") return real(value);
  if (kind == "as_floats") return list<double>(value, real);
  if (kind == "as_bool") return value.boolean();
  if (kind == "as_bools")
    return list<bool>(value, [](const JsonReader& one) { return one.boolean(); });
  if (kind == "as_string") return value.text();
  if (kind == "as_strings")
    return list<std::string>(value, [](const JsonReader& one) { return one.text(); });
  if (kind == "as_sym_int") return sym_int(value);
  if (kind == "as_sym_ints") return list<SymIntArgument>(value, sym_int);
  if (kind == "as_sym_float") return sym_float(value);
  if (kind == "as_sym_floats") return list<SymFloatArgument>(value, sym_float);
  if (kind == "as_sym_bool") return sym_bool(value);
  if (kind == "as_sym_bools") return list<SymBoolArgument>(value, sym_bool);
  if (kind == "as_scalar_type") return scalar_type(value);
  if (kind == "as_memory_format") return static_cast<MemoryFormat>(value.integer(1, 4));
  if (kind == "as_layout") return LayoutArgument{value.integer(0, 100)};
  if (kind == "as_device") return device(value);
  if (kind == "as_graph") {
    return GraphArgument{value.at("name").text(),
                         std::make_shared<const Graph>(read_graph(value.at("graph"), depth + 1))};
  }
  json.fail(fmt::format("arguments of the kind '{}' are not supported", printable(kind)));
}

/// "key,path,type;key,path,type": outermost first.
std::vector<ModuleFrame> module_frames(const std::string& text) {
  std::vector<ModuleFrame> frames;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    const std::string frame = text.substr(at, end - at);
    const size_t first = frame.find(',');
    const size_t second = first == std::string::npos ? first : frame.find(',', first + 1);
    if (second != std::string::npos)
      frames.push_back({frame.substr(first + 1, second - first - 1), frame.substr(second + 1)});
    at = end + 1;
  }
  return frames;
}

Node read_node(const JsonReader& json, int depth) {
  Node node{.target = json.at("target").text(), .inputs = {}, .outputs = {}};
  for (const JsonReader& input : json.at("inputs").elements()) {
    node.inputs.push_back({input.text_or("name", ""), argument(input.at("arg"), depth),
                           input.integer_or("kind", 1) == 2});
  }
  for (const JsonReader& output : json.at("outputs").elements())
    node.outputs.push_back(argument(output, depth));
  node.name = json.text_or("name", "");
  if (const auto metadata = json.find("metadata")) {
    node.stack_trace = metadata->text_or("stack_trace", "");
    node.modules = module_frames(metadata->text_or("nn_module_stack", ""));
  }
  return node;
}

Graph read_graph(const JsonReader& json, int depth) {
  if (depth > kMaxGraphDepth) json.fail("graphs inside of graphs, too deep");
  Graph graph;
  for (const JsonReader& input : json.at("inputs").elements())
    graph.inputs.push_back(argument(input, depth));
  for (const JsonReader& output : json.at("outputs").elements())
    graph.outputs.push_back(argument(output, depth));
  for (const JsonReader& node : json.at("nodes").elements())
    graph.nodes.push_back(read_node(node, depth));
  const JsonReader tensors = object(json.at("tensor_values"));
  for (const auto& [name, meta] : tensors.raw().items())
    graph.tensors.emplace(name, tensor_meta(tensors.at(name)));
  if (const auto sizes = json.find("sym_int_values")) {
    object(*sizes);
    for (const auto& [name, size] : sizes->raw().items())
      graph.sym_ints.emplace(name, symbolic_int(sizes->at(name)));
  }
  if (const auto single = json.find("is_single_tensor_return"))
    graph.single_tensor_return = single->boolean();
  return graph;
}

InputRole input_role(const JsonReader& json) {
  InputRole role;
  if (const auto user = json.find("user_input")) {
    role.argument = argument(user->at("arg"), 0);
  } else if (const auto parameter = json.find("parameter")) {
    role.kind = InputRole::Kind::Parameter;
    role.argument = tensor(parameter->at("arg"));
    role.name = parameter->at("parameter_name").text();
  } else if (const auto buffer = json.find("buffer")) {
    role.kind = InputRole::Kind::Buffer;
    role.argument = tensor(buffer->at("arg"));
    role.name = buffer->at("buffer_name").text();
    role.persistent = buffer->at("persistent").boolean();
  } else if (const auto constant = json.find("tensor_constant")) {
    role.kind = InputRole::Kind::TensorConstant;
    role.argument = tensor(constant->at("arg"));
    role.name = constant->at("tensor_constant_name").text();
  } else if (const auto input = json.find("constant_input")) {
    role.kind = InputRole::Kind::Constant;
    role.name = input->text_or("name", "");
  } else {
    json.fail("inputs of this kind are not supported");
  }
  return role;
}

OutputRole output_role(const JsonReader& json) {
  OutputRole role;
  if (const auto user = json.find("user_output")) {
    role.argument = argument(user->at("arg"), 0);
  } else if (const auto loss = json.find("loss_output")) {
    role.kind = OutputRole::Kind::Loss;
    role.argument = tensor(loss->at("arg"));
  } else if (const auto buffer = json.find("buffer_mutation")) {
    role.kind = OutputRole::Kind::BufferMutation;
    role.argument = tensor(buffer->at("arg"));
    role.name = buffer->text_or("buffer_name", "");
  } else {
    role.kind = OutputRole::Kind::Other;
    role.argument = NoneArgument{};
    role.name = json.raw().is_object() && !json.raw().empty() ? json.raw().begin().key() : "";
  }
  return role;
}

/// "L['x'].size()[0] % 2 == 0"
bool asks_for_multiples(std::string_view guard) {
  constexpr std::string_view kRemainder = ".size()[0] % ";
  const size_t found = guard.find(kRemainder);
  if (found == std::string_view::npos) return false;
  const std::string_view divisor = guard.substr(found + kRemainder.size());
  return !divisor.empty() && divisor.front() >= '0' && divisor.front() <= '9';
}

}  // namespace

TensorMeta read_tensor_meta(const JsonReader& json) { return tensor_meta(json); }

void read_program_text(std::string_view text, const std::string& place, Program& program) {
  const Json document = parse_json(text, place);
  const JsonReader root(document, place);
  const JsonReader version = root.at("schema_version");
  const int64_t major = version.at("major").integer();
  program.schema = fmt::format("{}.{}", major, version.at("minor").integer());
  if (major != 8) version.fail(fmt::format("schema version {}, expected 8", program.schema));
  program.torch_version = root.text_or("torch_version", "");
  const JsonReader module = root.at("graph_module");
  program.graph = read_graph(module.at("graph"), 0);
  const JsonReader signature = module.at("signature");
  for (const JsonReader& spec : signature.at("input_specs").elements())
    program.inputs.push_back(input_role(spec));
  for (const JsonReader& spec : signature.at("output_specs").elements())
    program.outputs.push_back(output_role(spec));
  if (program.inputs.size() != program.graph.inputs.size())
    signature.fail("there is not one role for each input");
  if (const auto ranges = root.find("range_constraints")) {
    object(*ranges);
    for (const auto& [symbol, unused] : ranges->raw().items()) {
      const JsonReader range = ranges->at(symbol);
      SymbolRange bounds;
      if (const auto min = range.find("min_val")) bounds.min = min->integer();
      if (const auto max = range.find("max_val")) bounds.max = max->integer();
      program.ranges.emplace(symbol, bounds);
    }
  }
  // Ranges and equal sizes are known otherwise. What else a batch must keep belongs to a branch of
  // the model that was left out; quotients of several sizes hold for all batches that are equal.
  if (const auto guards = root.find("guards_code")) {
    for (const JsonReader& guard : guards->elements()) {
      if (!asks_for_multiples(guard.text())) continue;
      guard.fail(fmt::format(
          "the program holds only for batches with {}, because of a branch in the model: export it "
          "for any batch, with torch.export.Dim(\"batch\", min=1)",
          printable(guard.text())));
    }
  }
}

}  // namespace penstock::exported
