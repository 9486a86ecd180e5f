// Arguments of a program's nodes as libtorch's operators take them. Internal to imported.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "penstock/exported/program.h"
#include "penstock/imported/flat_program.h"
#include "penstock/imported/symbolic_size.h"

namespace penstock::imported {

/// Per argument of the schema the node's, or nullptr for the default. Throws ConfigError.
std::vector<const exported::Argument*> matched(const exported::Node& node,
                                               const c10::FunctionSchema& schema);
using exported::tensor_names;
/// The sizes that an argument is made of; empty for another kind of argument. Throws ConfigError.
std::vector<SizeExpression> sizes_in(const exported::Argument& argument,
                                     const FlatProgram& program);
/// A number where the operator takes a tensor, as PyTorch passes `x + 1`.
at::Tensor wrapped(const at::Scalar& number);
/// That of an optional one, or the type itself.
const c10::Type& inner_type(const c10::Type& type);
bool is_list_of(const c10::Type& type, c10::TypeKind kind);
/// A constant argument as the schema's type wants it. Throws ConfigError.
c10::IValue constant(const exported::Argument& argument, const c10::Type& wanted);

}  // namespace penstock::imported
