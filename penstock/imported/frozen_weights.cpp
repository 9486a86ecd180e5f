#include "penstock/imported/frozen_weights.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "penstock/imported/step_edit.h"

namespace penstock::imported {

namespace {

/// Of a linear step that reads it as its weight alone.
std::optional<std::string> weight_of(const StepEdit& step) {
  if (step.name() != "linear") return std::nullopt;
  const auto weight = step.tensor("weight");
  const std::vector<std::string> reads = step.reads();
  if (!weight || std::count(reads.begin(), reads.end(), *weight) != 1) return std::nullopt;
  return weight;
}

bool is_matrix(const exported::TensorMeta& meta) {
  return meta.sizes.size() == 2 && meta.sizes[0].value > 0 && meta.sizes[1].value > 0 &&
         (meta.type == exported::ScalarType::Float || exported::is_short_float(meta.type));
}

}  // namespace

std::set<std::string> weights_of_linear_steps(const TrainableProgram& program) {
  std::set<std::string> weights;
  std::set<std::string> others;
  std::string last;
  for (const Step& step : program.program.steps) {
    const StepEdit edit(step, program.program);
    const auto weight = weight_of(edit);
    for (const std::string& name : edit.reads()) {
      if (!program.role_of.contains(name)) continue;
      const bool is_weight = weight == name && program.origins.frozen.contains(name) &&
                             is_matrix(program.stored(name).meta);
      (is_weight ? weights : others).insert(name);
      if (weight == name && program.role_of.at(name)->name.find(".lora_") == std::string::npos)
        last = name;
    }
  }
  if (!last.empty()) others.insert(last);
  std::set<std::pair<std::string, int64_t>> taken;
  for (const std::string& name : others) {
    if (program.stored(name).num_bytes > 0) taken.insert(program.stored(name).place());
  }
  std::erase_if(weights, [&](const std::string& name) {
    return others.contains(name) || taken.contains(program.stored(name).place());
  });
  return weights;
}

}  // namespace penstock::imported
