#include "penstock/options/large_batch.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::options {
namespace {

struct LargeBatchRule {
  std::string_view name;
  bool LargeBatchRules::*is_on;
  std::string_view help;
};

constexpr std::array<LargeBatchRule, 6> kLargeBatchRules = {
    {{"scale", &LargeBatchRules::scale, "the learning rate grows with the samples"},
     {"warmup", &LargeBatchRules::warmup, "it does so over the first 5 epochs"},
     {"statistics", &LargeBatchRules::statistics,
      "batch norm's are those of as many samples as in a base step"},
     {"momentum", &LargeBatchRules::momentum, "the momentum stays where the rate changes"},
     {"decay", &LargeBatchRules::decay, "norms and biases do not decay"},
     {"gamma", &LargeBatchRules::gamma, "the last norm of a residual block begins with 0"}}};

void refuse_rules(const std::string& text) {
  std::string names;
  for (const LargeBatchRule& rule : kLargeBatchRules) names += fmt::format(", {}", rule.name);
  throw ConfigError(fmt::format(
      "expected all{}, with ',' between them and '-' before what is left out, found '{}'", names,
      printable(text)));
}

}  // namespace

LargeBatchRules parse_large_batch(const std::string& text) {
  LargeBatchRules rules;
  if (text.empty() || text == "all") return rules;
  std::string_view rest = text;
  // What is left out is left out of all.
  const bool begins_with_all = rest.front() == '-' || rest.starts_with("all,");
  for (const LargeBatchRule& rule : kLargeBatchRules) rules.*rule.is_on = begins_with_all;
  if (rest.starts_with("all,")) rest.remove_prefix(4);
  while (true) {
    std::string_view item = rest.substr(0, rest.find(','));
    const bool is_last = item.size() == rest.size();
    rest.remove_prefix(is_last ? rest.size() : item.size() + 1);
    const bool is_off = item.starts_with('-');
    if (is_off) item.remove_prefix(1);
    bool is_known = false;
    for (const LargeBatchRule& rule : kLargeBatchRules) {
      if (rule.name != item) continue;
      rules.*rule.is_on = !is_off;
      is_known = true;
    }
    if (!is_known) refuse_rules(text);
    if (is_last) return rules;
  }
}

std::string to_string(const LargeBatchRules& rules) {
  if (rules == LargeBatchRules{}) return "all";
  std::string names;
  for (const LargeBatchRule& rule : kLargeBatchRules) {
    if (rules.*rule.is_on) names += fmt::format("{}{}", names.empty() ? "" : ",", rule.name);
  }
  if (!names.empty()) return names;
  for (const LargeBatchRule& rule : kLargeBatchRules) names += fmt::format(",-{}", rule.name);
  return "all" + names;
}

std::string large_batch_help() {
  std::string help;
  for (const LargeBatchRule& rule : kLargeBatchRules)
    help += fmt::format("{}{}: {}", help.empty() ? "" : "; ", rule.name, rule.help);
  return help;
}

}  // namespace penstock::options
