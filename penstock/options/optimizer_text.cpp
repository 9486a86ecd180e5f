#include "penstock/options/optimizer_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::options {
namespace {

using model::OptimizerFlag;
using model::OptimizerKind;
using model::OptimizerParameter;
using model::OptimizerSpec;

std::vector<OptimizerFlag> flags_of(OptimizerKind kind) {
  const auto own = model::traits(kind).flags;
  std::vector<OptimizerFlag> flags(own.begin(), own.end());
  flags.push_back(model::detail::kMaximize);
  return flags;
}

double number_of(std::string_view text, std::string_view item) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(number))
    return number;
  throw ConfigError(fmt::format("expected a number after '=', found '{}'", printable(item)));
}

bool set_parameter(OptimizerSpec& spec, std::string_view name, std::string_view value,
                   std::string_view item) {
  for (const OptimizerParameter& own : model::traits(spec.kind).parameters) {
    if (own.name != name) continue;
    const double number = number_of(value, item);
    if (const std::string refusal = own.refusal(number); !refusal.empty())
      throw ConfigError(refusal);
    spec.*own.value = number;
    return true;
  }
  return false;
}

bool set_flag(OptimizerSpec& spec, std::string_view name, std::string_view value,
              std::string_view item) {
  for (const OptimizerFlag& flag : flags_of(spec.kind)) {
    if (flag.name != name) continue;
    const bool is_off = value == "no";
    if (!is_off && !value.empty() && value != "yes") {
      throw ConfigError(
          fmt::format("expected {0}, {0}=yes or {0}=no, found '{1}'", name, printable(item)));
    }
    spec.*flag.value = !is_off;
    return true;
  }
  return false;
}

}  // namespace

std::string optimizers_with_momentum() {
  std::vector<std::string_view> names;
  for (const model::OptimizerTraits& row : model::kOptimizers) {
    if (takes(row.kind, &OptimizerSpec::momentum)) names.push_back(row.name);
  }
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::string parameter_names(OptimizerKind kind) {
  std::string names;
  for (const OptimizerParameter& own : model::traits(kind).parameters)
    names += fmt::format("{}, ", own.name);
  for (const OptimizerFlag& flag : flags_of(kind)) names += fmt::format("{}, ", flag.name);
  return names.substr(0, names.size() - 2);
}

void set_optimizer(OptimizerSpec& spec, const std::string& text) {
  std::string_view rest = text;
  const auto next = [&rest] {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    return item;
  };
  const OptimizerKind kind = model::parse_optimizer(next());
  if (kind != spec.kind) spec = model::usual_spec(kind, spec);
  while (!rest.empty()) {
    const std::string_view item = next();
    const std::string_view name = item.substr(0, item.find('='));
    const std::string_view value = item.substr(std::min(name.size() + 1, item.size()));
    if (set_parameter(spec, name, value, item) || set_flag(spec, name, value, item)) continue;
    throw ConfigError(fmt::format("the optimiser {} has no '{}'; it has {}", to_string(kind),
                                  printable(name), parameter_names(kind)));
  }
}

std::string optimizer_text(const OptimizerSpec& spec) {
  std::string text(to_string(spec.kind));
  for (const OptimizerParameter& own : model::traits(spec.kind).parameters) {
    if (own.value == &OptimizerSpec::momentum || spec.*own.value == own.usual) continue;
    text += fmt::format(",{}={}", own.name, spec.*own.value);
  }
  for (const OptimizerFlag& flag : flags_of(spec.kind)) {
    if (flag.value == &OptimizerSpec::nesterov || spec.*flag.value == flag.usual) continue;
    text += fmt::format(",{}{}", flag.name, spec.*flag.value ? "" : "=no");
  }
  return text;
}

}  // namespace penstock::options
