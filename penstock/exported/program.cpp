#include "penstock/exported/program.h"

namespace penstock::exported {

std::string_view to_string(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Char:
      return "int8";
    case ScalarType::Short:
      return "int16";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Half:
      return "float16";
    case ScalarType::Float:
      return "float32";
    case ScalarType::Double:
      return "float64";
    case ScalarType::ComplexHalf:
      return "complex32";
    case ScalarType::ComplexFloat:
      return "complex64";
    case ScalarType::ComplexDouble:
      return "complex128";
    case ScalarType::Bool:
      return "bool";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::UInt16:
      return "uint16";
    case ScalarType::Unknown:
      break;
  }
  return "unknown";
}

int64_t size_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Bool:
      return 1;
    case ScalarType::Short:
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::UInt16:
      return 2;
    case ScalarType::Int:
    case ScalarType::Float:
    case ScalarType::ComplexHalf:
      return 4;
    case ScalarType::Long:
    case ScalarType::Double:
    case ScalarType::ComplexFloat:
      return 8;
    case ScalarType::ComplexDouble:
      return 16;
    case ScalarType::Unknown:
      break;
  }
  return 0;
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

}  // namespace penstock::exported
