#include <fmt/format.h>

#include <algorithm>

#include "penstock/options/rows.h"

namespace penstock::options {

namespace {

template <class... Visit>
struct Overloaded : Visit... {
  using Visit::operator()...;
};
template <class... Visit>
Overloaded(Visit...) -> Overloaded<Visit...>;

}  // namespace

std::string text_of(const Slot& slot) {
  return std::visit(
      Overloaded{[](const Named& named) { return named.text(); },
                 [](Off off) { return std::string(*off.value ? "no" : "yes"); },
                 [](const bool* flag) { return std::string(*flag ? "yes" : "no"); },
                 [](const std::string* text) { return *text; },
                 [](const std::optional<std::string>* text) { return text->value_or(""); },
                 []<class Number>(const std::optional<Number>* number) {
                   return *number ? fmt::to_string(**number) : std::string();
                 },
                 [](const auto* number) { return fmt::format("{}", *number); }},
      slot);
}

bool is_flag(const Slot& slot) {
  return std::holds_alternative<bool*>(slot) || std::holds_alternative<Off>(slot);
}

std::string plan_request(const TrainRequest& request) {
  if (!request.plan.file.empty()) return fmt::format("--plan {}", request.plan.file);
  const TrainRequest usual;
  std::string text;
  for (const Row& row : train_rows()) {
    if (row.changes != Changes::Plan && row.changes != Changes::Both) continue;
    const std::string value = text_of(row, request);
    if (value == text_of(row, usual)) continue;
    text += is_flag(row) ? fmt::format(" {}", row.name) : fmt::format(" {} {}", row.name, value);
  }
  return text.empty() ? text : text.substr(1);
}

std::map<std::string, std::string> kept_options(const TrainRequest& request) {
  std::map<std::string, std::string> kept;
  for (const Row& row : train_rows()) {
    if (row.changes != Changes::Learning && row.changes != Changes::Both) continue;
    const std::optional<std::string> text =
        row.kept != nullptr ? row.kept(request) : std::optional(text_of(row, request));
    if (text && !text->empty()) kept[std::string(row.name)] = *text;
  }
  return kept;
}

std::string idle_options(const RunFacts& facts, std::span<const std::string_view> given) {
  std::string text;
  for (const Row& row : train_rows()) {
    if (row.idle == nullptr || std::find(given.begin(), given.end(), row.name) == given.end())
      continue;
    if (const std::string why = row.idle(facts); !why.empty())
      text += fmt::format("warning: {} has no effect: {}\n", row.name, why);
  }
  return text;
}

}  // namespace penstock::options
