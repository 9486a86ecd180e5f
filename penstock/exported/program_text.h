// The text of a PyTorch program: the JSON of torch/_export/serde/schema.py, schema major 8.
// Internal to exported; apart, so that it can be fuzzed.
#pragma once

#include <string>
#include <string_view>

#include "penstock/exported/program.h"
#include "penstock/util/files/json.h"

namespace penstock::exported {

/// Adds schema, version, graph, roles and ranges to `program`. Throws ParseError naming the place
/// in the text: malformed, something missing, another schema, a kind of argument that is unknown.
void read_program_text(std::string_view text, const std::string& place, Program& program);

/// Throws ParseError.
TensorMeta read_tensor_meta(const JsonReader& json);

}  // namespace penstock::exported
