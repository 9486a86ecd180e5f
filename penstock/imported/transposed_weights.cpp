#include "penstock/imported/transposed_weights.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "penstock/imported/step_edit.h"

namespace penstock::imported {
namespace {

bool is_transposition(const StepEdit& step, const FlatProgram& program) {
  static const std::set<std::string, std::less<>> kNames = {"t",        "transpose", "permute",
                                                            "swapaxes", "numpy_T",   "mT"};
  if (!kNames.contains(step.name()) || step.reads().size() != 1) return false;
  const auto read = program.tensors.find(step.reads().front());
  const auto made = program.tensors.find(step.outputs().front());
  if (read == program.tensors.end() || made == program.tensors.end()) return false;
  const auto& from = read->second.sizes;
  const auto& to = made->second.sizes;
  return from.size() == 2 && to.size() == 2 && from[0] == to[1] && from[1] == to[0];
}

}  // namespace

std::map<size_t, TransposedWeight> transposed_weights(const FlatProgram& program,
                                                      const std::vector<std::string>& weights) {
  std::map<std::string, size_t> reads;
  std::map<std::string, std::pair<std::string, size_t>> transposed;  // weight and step, by output
  std::map<size_t, TransposedWeight> found;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const StepEdit step(program.steps[s], program);
    for (const std::string& name : step.reads()) ++reads[name];
    if (is_transposition(step, program) &&
        std::find(weights.begin(), weights.end(), step.reads().front()) != weights.end()) {
      transposed[step.outputs().front()] = {step.reads().front(), s};
      continue;
    }
    const bool adds = step.name() == "addmm";
    const auto left = step.tensor(adds ? "mat1" : "self");
    const auto right = step.tensor(adds ? "mat2" : step.name() == "matmul" ? "other" : "mat2");
    const bool is_product = adds || step.name() == "mm" || step.name() == "matmul";
    if (!is_product || !left || !right) continue;
    const auto weight = transposed.find(*right);
    if (weight != transposed.end()) found[weight->second.second] = {weight->second.first, *left};
  }
  std::erase_if(found, [&](const auto& one) {
    const std::string made = StepEdit(program.steps[one.first], program).outputs().front();
    return reads[one.second.weight] != 1 || reads[made] != 1;
  });
  return found;
}

}  // namespace penstock::imported
