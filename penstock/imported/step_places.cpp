#include "penstock/imported/step_places.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <vector>

#include "penstock/imported/operator_call.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

at::Tensor places_of(const std::string& name, const FlatProgram& program, const Symbols& symbols,
                     int64_t first) {
  const auto meta = program.tensors.find(name);
  if (meta == program.tensors.end())
    throw ConfigError(fmt::format("the value '{}' is not described", printable(name)));
  std::vector<int64_t> sizes;
  int64_t numbers = 1;
  for (const exported::SymbolicInt& size : meta->second.sizes) {
    sizes.push_back(SizeExpression(size).evaluate(symbols));
    numbers *= sizes.back();
  }
  if (first < 0) return at::zeros(sizes, at::kLong);
  return at::arange(first, first + numbers, at::kLong).view(sizes);
}

void run_step(const StepEdit& edit, const FlatProgram& program, const Symbols& symbols,
              std::map<std::string, at::Tensor>& values) {
  std::map<std::string, size_t> slots;
  const auto slot_of = [&](const std::string& name) {
    return slots.emplace(name, slots.size()).first->second;
  };
  const OperatorCall call(edit.step(), program, slot_of, 0);
  std::vector<at::Tensor> table(slots.size());
  for (const auto& [name, slot] : slots) {
    if (const auto found = values.find(name); found != values.end()) table[slot] = found->second;
  }
  const model::ForwardContext forward;
  const at::NoGradGuard no_grad;
  call.run(table, {.forward = &forward, .symbols = &symbols});
  for (const auto& [name, slot] : slots) values[name] = table[slot];
}

}  // namespace penstock::imported
