// How weights that are never trained are held. Torch-free.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::model {

enum class FrozenType : uint8_t {
  AsStored,  ///< in the type of the file
  Int8,      ///< those of linear modules in 8 bits (layers/int8_product.h), the others as stored
};

/// "as-stored", "int8".
inline std::string_view to_string(FrozenType type) {
  return type == FrozenType::Int8 ? "int8" : "as-stored";
}

/// Throws ConfigError for another name.
inline FrozenType parse_frozen_type(const std::string& name) {
  for (const FrozenType type : {FrozenType::AsStored, FrozenType::Int8}) {
    if (to_string(type) == name) return type;
  }
  throw ConfigError(fmt::format("expected as-stored or int8, found '{}'", printable(name)));
}

}  // namespace penstock::model
