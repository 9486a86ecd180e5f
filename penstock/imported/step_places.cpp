#include "penstock/imported/step_places.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include "penstock/imported/operator_call.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

std::vector<int64_t> sizes_of(const std::string& name, const FlatProgram& program,
                              const Symbols& symbols) {
  const auto meta = program.tensors.find(name);
  if (meta == program.tensors.end())
    throw ConfigError(fmt::format("the value '{}' is not described", printable(name)));
  std::vector<int64_t> sizes;
  for (const exported::SymbolicInt& size : meta->second.sizes)
    sizes.push_back(SizeExpression(size).evaluate(symbols));
  return sizes;
}

at::Tensor places_of(const std::vector<int64_t>& sizes, int64_t first) {
  if (first < 0) return at::zeros(sizes, at::kLong);
  const int64_t numbers =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
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

namespace {

/// First, second, middle and last.
at::Tensor some_places(int64_t length) {
  std::set<int64_t> places;
  for (const int64_t place : {int64_t{0}, int64_t{1}, length / 2, length - 1}) {
    if (place >= 0 && place < length) places.insert(place);
  }
  return at::tensor(std::vector<int64_t>(places.begin(), places.end()), at::kLong);
}

/// Where in the whole value the numbers are that are at those places of the member's, which are
/// counted through all dimensions.
at::Tensor in_whole(const PartViews& views, at::Tensor places) {
  at::Tensor result = at::zeros({}, at::kLong);
  int64_t stride = 1;
  for (int64_t d = views.own.dim() - 1; d >= 0; --d) {
    const int64_t length = views.own.size(d);
    at::Tensor place = places.remainder(length);
    places = places.floor_divide(length);
    if (static_cast<size_t>(d) == views.read.dimension) place = views.read.places.take(place);
    result = result + place * stride;
    stride *= views.whole.size(d);
  }
  return result;
}

}  // namespace

std::optional<bool> views_agree(const PartViews& views) {
  const at::Tensor& whole = views.view_of_whole;
  const at::Tensor& own = views.view_of_own;
  if (!whole.is_alias_of(views.whole) || !own.is_alias_of(views.own)) return std::nullopt;
  if (own.dim() != whole.dim()) return false;
  at::Tensor in_view_of_whole = at::full({}, whole.storage_offset(), at::kLong);
  at::Tensor in_view_of_own = at::full({}, own.storage_offset(), at::kLong);
  for (int64_t d = 0; d < own.dim(); ++d) {
    const bool is_part = static_cast<size_t>(d) == views.made.dimension;
    if (own.size(d) != (is_part ? views.made.places.numel() : whole.size(d))) return false;
    const at::Tensor places =
        is_part ? at::arange(own.size(d), at::kLong) : some_places(own.size(d));
    std::vector<int64_t> sizes(static_cast<size_t>(own.dim()), 1);
    sizes[static_cast<size_t>(d)] = -1;
    in_view_of_own = in_view_of_own + (places * own.stride(d)).view(sizes);
    in_view_of_whole =
        in_view_of_whole + ((is_part ? views.made.places : places) * whole.stride(d)).view(sizes);
  }
  return at::equal(in_whole(views, in_view_of_own), in_view_of_whole);
}

}  // namespace penstock::imported
