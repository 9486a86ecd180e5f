// penstock import: what is in an exported PyTorch model, and whether it can be trained here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>

#include "penstock/exported/program.h"
#include "penstock/imported/import_model.h"
#include "penstock/train/data/sample_spec.h"
#include "penstock/util/files/json.h"
#include "penstock/util/text/printable.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/command/model_options.h"

namespace penstock::tool {

namespace {

std::string sizes_text(const model::Shape& shape) {
  return shape.empty() ? "one number" : fmt::format("{}", fmt::join(shape, "x"));
}

struct Described {
  std::string table;
  Json json;
};

Described describe(const exported::Program& program, const model::Model& model) {
  const graph::ModelGraph& graph = model.graph();
  const graph::ValueRef result = graph.outputs().front();
  const model::Shape& output =
      model.output_shapes(result.layer).at(static_cast<size_t>(result.output));
  Described text;
  text.table = fmt::format(
      "{}: PyTorch {}, schema {}\n", printable(program.path),
      program.torch_version.empty() ? "of unknown version" : printable(program.torch_version),
      program.schema);
  text.json = {{"path", program.path},     {"torch_version", program.torch_version},
               {"schema", program.schema}, {"parameters", model.parameter_count()},
               {"inputs", Json::array()},  {"output", output},
               {"layers", Json::array()}};
  const std::string note = imported::note_of(model);
  if (!note.empty()) text.json["note"] = note;
  for (const model::InputSpec& input : model.inputs()) {
    text.table += fmt::format("  input       {}: {}, a sample\n", printable(input.name),
                              train::describe(input.type, input.shape));
    text.json["inputs"].push_back(
        {{"name", input.name}, {"type", train::type_name(input.type)}, {"shape", input.shape}});
  }
  text.table += fmt::format("  output      {}\n  parameters  {}\n",
                            model.returns_loss() ? "its loss" : sizes_text(output) + ", a sample",
                            model.parameter_count());
  size_t ties = 0;
  size_t width = 5;
  for (const graph::LayerNode& layer : graph.layers()) {
    ties += layer.ties.size();
    width = std::max(width, layer.name.size());
  }
  if (!note.empty()) text.table += fmt::format("  note        {}\n", note);
  if (ties > 0)
    text.table += fmt::format("  tied        {} use(s) of the weights of others\n", ties);
  text.table += fmt::format(
      "  layers      {}; it may be cut between any two\n\n{:<{}}  {:<24}  {:>12}  output\n",
      graph.num_layers(), "layer", width, "kind", "parameters");
  for (int i = 0; i < graph.num_layers(); ++i) {
    const graph::LayerNode& layer = graph.layer(LayerId{i});
    std::string outputs;
    for (const model::Shape& shape : model.output_shapes(LayerId{i}))
      outputs += (outputs.empty() ? "" : ", ") + sizes_text(shape);
    text.table += fmt::format("{:<{}}  {:<24}  {:>12}  {}\n", layer.name, width, layer.kind,
                              model.parameter_count(LayerId{i}), outputs);
    text.json["layers"].push_back({{"name", layer.name},
                                   {"kind", layer.kind},
                                   {"parameters", model.parameter_count(LayerId{i})},
                                   {"output_shapes", model.output_shapes(LayerId{i})}});
  }
  return text;
}

int run_import(const ImportArguments& arguments) {
  const exported::Program program = exported::read_program(arguments.path);
  const Described text = describe(program, imported::import_model(arguments.path));
  write_output("", arguments.json ? text.json.dump() + "\n" : text.table);
  return kExitYes;
}

}  // namespace

Command import_command(CLI::App& parent, char**) {
  auto arguments = std::make_shared<ImportArguments>();
  return {add_import(parent, *arguments), [arguments] { return run_import(*arguments); }};
}

}  // namespace penstock::tool
