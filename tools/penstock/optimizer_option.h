#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string>

#include "penstock/model/optimizer_spec.h"
#include "penstock/util/error.h"

namespace penstock::tool {

/// Adds --optimizer; `use` says what it is for: ": the optimiser whose state takes memory".
inline CLI::Option* add_optimizer(CLI::App& app, model::OptimizerKind& kind,
                                  const std::string& use = "") {
  const auto read = [&kind](const std::string& name) {
    try {
      kind = model::parse_optimizer(name);
    } catch (const ConfigError& error) {
      throw CLI::ValidationError("--optimizer", error.what());
    }
  };
  return app.add_option_function<std::string>("--optimizer", read, model::optimizer_names() + use)
      ->default_str(std::string(to_string(kind)));
}

/// Throws ConfigError naming the option of a parameter that is out of range.
inline void check_optimizer(const model::OptimizerSpec& spec) {
  for (const model::OptimizerParameter& parameter : traits(spec.kind).parameters) {
    const std::string refusal = parameter.refusal(spec.*parameter.value);
    if (!refusal.empty())
      throw ConfigError(fmt::format("--{}: the optimiser's {}", parameter.name, refusal));
  }
}

}  // namespace penstock::tool
