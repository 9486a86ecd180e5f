// A PyTorch program as torch.export wrote it (.pt2): operators in order, what they read and make,
// which inputs are weights, and where the weights' bytes are. Plain values, as in the file
// (torch/_export/serde/schema.py, schema major 8); torch-free, so that the reader can be fuzzed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::exported {

/// The numbers of the file, which are not those of c10::ScalarType.
enum class ScalarType : uint8_t {
  Unknown = 0,
  Byte = 1,
  Char = 2,
  Short = 3,
  Int = 4,
  Long = 5,
  Half = 6,
  Float = 7,
  Double = 8,
  ComplexHalf = 9,
  ComplexFloat = 10,
  ComplexDouble = 11,
  Bool = 12,
  BFloat16 = 13,
  UInt16 = 28
};
/// "float32", "int64", ... as PyTorch prints them.
std::string_view to_string(ScalarType type);
/// Bytes of one number; 0 for Unknown.
int64_t size_of(ScalarType type);
constexpr bool is_short_float(ScalarType type) {
  return type == ScalarType::BFloat16 || type == ScalarType::Half;
}

enum class MemoryFormat : uint8_t {
  Contiguous = 1,
  ChannelsLast = 2,
  ChannelsLast3d = 3,
  Preserve = 4
};

/// A size that is a number, or an expression over symbols such as the batch size.
struct SymbolicInt {
  /// The number, or the value in the example that the model was exported with.
  int64_t value = 0;
  /// sympy's text, such as "Symbol('s77', positive=True, integer=True)"; empty for a number.
  std::string expression = {};

  bool is_number() const { return expression.empty(); }
  bool operator==(const SymbolicInt&) const = default;
};

struct Device {
  std::string type;  ///< "cpu", "cuda"
  std::optional<int64_t> index = {};
  bool operator==(const Device&) const = default;
};

struct TensorMeta {
  ScalarType type = ScalarType::Float;
  std::vector<SymbolicInt> sizes;
  std::vector<SymbolicInt> strides;  ///< in numbers, not bytes; as many as sizes
  SymbolicInt storage_offset;        ///< in numbers
  bool requires_grad = false;
  Device device;
  bool operator==(const TensorMeta&) const = default;
};

struct Graph;

/// The kinds of argument. A name refers to a value of the graph that some node makes, or an input.
struct NoneArgument {
  bool operator==(const NoneArgument&) const = default;
};
struct TensorArgument {
  std::string name;
  bool operator==(const TensorArgument&) const = default;
};
/// A symbolic number: made by a node (name), or a constant where symbols may stand.
struct SymIntArgument {
  std::variant<std::string, int64_t> value;
  bool operator==(const SymIntArgument&) const = default;
};
struct SymFloatArgument {
  std::variant<std::string, double> value;
  bool operator==(const SymFloatArgument&) const = default;
};
struct SymBoolArgument {
  std::variant<std::string, bool> value;
  bool operator==(const SymBoolArgument&) const = default;
};
struct LayoutArgument {
  int64_t layout = 7;  ///< 7 strided
  bool operator==(const LayoutArgument&) const = default;
};
/// A graph of its own, run by a higher-order operator.
struct GraphArgument {
  std::string name;
  std::shared_ptr<const Graph> graph;
  bool operator==(const GraphArgument&) const = default;
};

using Argument =
    std::variant<NoneArgument, TensorArgument, std::vector<TensorArgument>,
                 std::vector<std::optional<TensorArgument>>, int64_t, std::vector<int64_t>, double,
                 std::vector<double>, bool, std::vector<bool>, std::string,
                 std::vector<std::string>, SymIntArgument, std::vector<SymIntArgument>,
                 SymFloatArgument, std::vector<SymFloatArgument>, SymBoolArgument,
                 std::vector<SymBoolArgument>, ScalarType, MemoryFormat, LayoutArgument, Device,
                 GraphArgument>;
/// The tensors that an argument names.
std::vector<std::string> tensor_names(const Argument& argument);

struct NamedArgument {
  std::string name;  ///< of the operator's schema: "input", "weight"; may be empty
  Argument value;
  bool keyword = false;  ///< given by name, not by place
};

/// A module of the user's model that a node stands in.
struct ModuleFrame {
  std::string path;  ///< "layers.0.attention"; empty for the model itself
  std::string type;  ///< "torch.nn.modules.conv.Conv2d"
};

struct Node {
  std::string target;  ///< "torch.ops.aten.conv2d.default", "_operator.mul"
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;
  std::string name = {};                  ///< may be empty
  std::string stack_trace = {};           ///< Python's; may be empty
  std::vector<ModuleFrame> modules = {};  ///< outermost first; may be empty
};

struct Graph {
  std::vector<Argument> inputs;
  std::vector<Argument> outputs;
  std::vector<Node> nodes;
  std::map<std::string, TensorMeta> tensors;
  std::map<std::string, SymbolicInt> sym_ints;
  bool single_tensor_return = false;
};

/// What an input of the graph is.
struct InputRole {
  enum class Kind : uint8_t { Parameter, Buffer, TensorConstant, User, Constant };
  Kind kind = Kind::User;
  Argument argument;       ///< the graph's input
  std::string name = {};   ///< of parameter, buffer, constant: "layers.0.weight"
  bool persistent = true;  ///< buffers: part of the state dict
};

struct OutputRole {
  enum class Kind : uint8_t { User, Loss, BufferMutation, InputMutation, Other };
  Kind kind = Kind::User;
  Argument argument;
  std::string name = {};  ///< the buffer that is mutated; the kind as in the file for Other
};

/// Bytes in a file. Two tensors with the same bytes are one tied tensor.
struct StoredTensor {
  TensorMeta meta;  ///< all sizes are numbers
  bool is_parameter = false;
  std::string file = {};  ///< that has them, beside the program's; empty: the program's own
  std::string name = {};  ///< in that file
  /// Place of the whole storage in the file; no bytes: values are not in the file.
  int64_t file_offset = 0;
  int64_t num_bytes = 0;
  uint32_t crc32 = 0;          ///< of them
  bool in_state_dict = false;  ///< not for constants, nor for buffers that are not persistent
  /// No file has values: training begins with random ones of [-x, x), by its seed.
  std::optional<double> begins_within = {};

  /// The file and where in it: equal for tied tensors that have bytes.
  std::pair<std::string, int64_t> place() const { return {file, file_offset}; }
};

/// Bounds of a symbol.
struct SymbolRange {
  std::optional<int64_t> min = {};
  std::optional<int64_t> max = {};
};

struct Program {
  std::string path;           ///< of the file, for messages and to read the bytes
  std::string schema;         ///< "8.20"
  std::string torch_version;  ///< that wrote it; may be empty
  Graph graph;
  std::vector<InputRole> inputs;              ///< as graph.inputs
  std::vector<OutputRole> outputs;            ///< as graph.outputs
  std::map<std::string, SymbolRange> ranges;  ///< per symbol
  /// Parameters and buffers of the state dict, and constants, by name.
  std::map<std::string, StoredTensor> tensors;
};

/// Reads a .pt2 file of PyTorch 2.9 or newer (weights as raw bytes, or in safetensors files beside
/// it: penstock.export). Takes time and memory in proportion to the program's text, not to the
/// weights, which stay in their files. Throws ConfigError naming file and place for: a file that
/// cannot be read, is no such archive, is damaged (sizes, check sums of the text, offsets outside
/// of the file), has another schema major, or holds what cannot be trained here (pickled objects,
/// tensor subclasses, unknown kinds of argument); all reasons of the last sort in one message.
Program read_program(const std::string& path);

}  // namespace penstock::exported
