#include "penstock/imported/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "penstock/imported/known_operators.h"
#include "penstock/imported/program_layer.h"
#include "penstock/imported/program_layers.h"
#include "penstock/imported/stored_values.h"
#include "penstock/imported/trainable_program.h"

namespace penstock::imported {

using model::ParameterSpec;

namespace {

/// Per input of whole numbers that looks up rows of a table: the rows of the smallest one.
std::map<std::string, int64_t> table_rows(const TrainableProgram& p) {
  std::map<std::string, std::set<std::string>> made_of;  // by alias set: of which inputs
  const auto root = [&](const std::string& name) { return p.aliases->root(name); };
  for (const std::string& name : p.origins.whole) made_of[root(name)] = {name};
  std::map<std::string, int64_t> rows;
  for (size_t s = 0; s < p.facts.size(); ++s) {
    const StepFacts& facts = p.facts[s];
    if (short_target(p.program.steps[s].node.target) == "embedding" && facts.reads.size() == 2) {
      const exported::TensorMeta& table = p.meta_of(facts.reads[0]);
      if (table.sizes.empty()) continue;
      for (const std::string& input : made_of[root(facts.reads[1])]) {
        const auto [place, is_new] = rows.emplace(input, table.sizes.front().value);
        if (!is_new) place->second = std::min(place->second, table.sizes.front().value);
      }
      continue;
    }
    // The same numbers in other places; computed ones have other bounds.
    if (!facts.is_view && !keeps_numbers(p.program.steps[s].node.target)) {
      for (const std::string& name : facts.mutated) made_of.erase(root(name));
      continue;
    }
    std::set<std::string> from;
    for (const std::string& read : facts.reads) {
      const auto found = made_of.find(root(read));
      if (found != made_of.end()) from.insert(found->second.begin(), found->second.end());
    }
    for (const std::string& output : facts.outputs) {
      if (!output.empty() && !from.empty() && is_whole(p.meta_of(output).type))
        made_of[root(output)] = from;
    }
  }
  return rows;
}

std::vector<model::InputSpec> input_specs(const TrainableProgram& p, const model::Model& model) {
  const std::map<std::string, int64_t> rows = table_rows(p);
  std::vector<model::InputSpec> specs;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const auto found = rows.find(p.inputs[i]);
    specs.push_back({.name = p.inputs[i],
                     .shape = model.input_shapes()[i],
                     .type = torch_type(p.meta_of(p.inputs[i]).type),
                     .values = found == rows.end() ? 0 : found->second});
  }
  return specs;
}

/// What tells the values of a frozen parameter from others.
std::string mark_of(const exported::StoredTensor& tensor) {
  std::string text = fmt::format("{:08x} {}", tensor.crc32, static_cast<int>(tensor.meta.type));
  for (const exported::SymbolicInt& size : tensor.meta.sizes)
    text += fmt::format(" {}", size.value);
  return text;
}

/// What the state dict has besides the layers' own: frozen, not used for the output, never
/// changed, or a second name of a tied weight.
std::vector<model::ExtraTensor> extra_state(const TrainableProgram& p, const model::Model& model) {
  std::set<std::string> kept;
  std::map<std::pair<std::string, int64_t>, std::string> key_at;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    for (const ParameterSpec& spec : model.layer(LayerId{i}).parameters()) {
      kept.insert(spec.key);
      key_at.emplace(p.source.tensors.at(spec.key).place(), spec.key);
    }
    for (const ParameterSpec& spec : model.layer(LayerId{i}).buffers()) kept.insert(spec.key);
  }
  std::vector<model::ExtraTensor> extra;
  for (const auto& [key, tensor] : p.source.tensors) {
    if (!tensor.in_state_dict || kept.contains(key)) continue;
    model::ExtraTensor one{key,
                           [path = p.path, stored = tensor] { return read_values(path, stored); }};
    const auto [same, is_first] = key_at.emplace(tensor.place(), key);
    if (!is_first && tensor.num_bytes > 0 && p.source.tensors.at(same->second).meta == tensor.meta)
      one.same_as = same->second;
    if (tensor.is_parameter && !tensor.meta.requires_grad) one.frozen = mark_of(tensor);
    extra.push_back(std::move(one));
  }
  return extra;
}

}  // namespace

model::Model import_model(const std::string& path, const ImportOptions& options) {
  const std::unique_ptr<const TrainableProgram> program = read_trainable(path, options);
  ProgramLayers made = make_layers(*program);
  const int num_inputs = static_cast<int>(program->inputs.size());
  model::Model model(std::filesystem::path(path).stem().string(),
                     graph::ModelGraph::build(num_inputs, std::move(made.nodes), {made.output}),
                     std::move(made.layers), std::move(made.input_shapes));
  model.set_extra_state(extra_state(*program, model));
  model.set_inputs(input_specs(*program, model));
  if (program->returns_loss) model.set_returns_loss();
  if (program->adapted) {
    model.set_adapters(model::Adapters{.rank = options.adapters->rank,
                                       .alpha = options.adapters->alpha,
                                       .modules = program->adapted->modules,
                                       .has_transposed = program->adapted->has_transposed});
  }
  return model;
}

std::string note_of(const model::Model& model) {
  const auto* layer = dynamic_cast<const ProgramLayer*>(&model.layer(LayerId{0}));
  return layer == nullptr ? std::string() : layer->note();
}

bool is_program(const model::Model& model) {
  return dynamic_cast<const ProgramLayer*>(&model.layer(LayerId{0})) != nullptr;
}

bool is_program_file(const std::string& name) { return name.ends_with(".pt2"); }

}  // namespace penstock::imported
