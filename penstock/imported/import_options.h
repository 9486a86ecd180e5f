// What becomes of a program that is imported.
#pragma once

#include <optional>

#include "penstock/exported/adapters.h"
#include "penstock/model/frozen_type.h"

namespace penstock::imported {

struct ImportOptions {
  std::optional<exported::AdapterSpec> adapters = {};  ///< these alone are trained then
  model::FrozenType frozen = model::FrozenType::AsStored;
};

}  // namespace penstock::imported
