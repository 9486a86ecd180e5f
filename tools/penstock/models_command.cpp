// penstock models: the model zoo.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "penstock/model/zoo.h"
#include "penstock/util/files/json.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/model_options.h"

namespace penstock::tool {

namespace {

std::string join(const model::Shape& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

int run_models(const CommonOptions& options) {
  Json list = Json::array();
  std::string table = fmt::format("{:<12} {:>12} {:>7} {:>14} {:>7}  {}\n", "model", "input",
                                  "classes", "parameters", "layers", "description");
  for (const auto& entry : model::zoo()) {
    const model::Model model = model::make_model({.name = entry.name});
    const int64_t parameters = model.parameter_count();
    table +=
        fmt::format("{:<12} {:>12} {:>7} {:>14} {:>7}  {}\n", entry.name, join(entry.input_shape),
                    entry.classes, parameters, model.graph().num_layers(), entry.description);
    list.push_back({{"name", entry.name},
                    {"description", entry.description},
                    {"input_shape", entry.input_shape},
                    {"classes", entry.classes},
                    {"parameters", parameters},
                    {"layers", model.graph().num_layers()}});
  }
  write_output("", options.json ? Json{{"models", list}}.dump() + "\n" : table);
  return kExitYes;
}

}  // namespace

Command models_command(CLI::App& parent, char**) {
  auto options = std::make_shared<CommonOptions>();
  return {add_models(parent, *options), [options]() { return run_models(*options); }};
}

}  // namespace penstock::tool
