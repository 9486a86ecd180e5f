#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "penstock/options/rows.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

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

namespace {

template <class Number>
Number number_of(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  throw ConfigError(fmt::format("expected a {}number in its range, found '{}'",
                                std::is_integral_v<Number> ? "whole " : "",
                                printable(text.substr(0, 60))));
}

}  // namespace

void set_text(const Slot& slot, const std::string& text) {
  std::visit(
      Overloaded{
          [&](const Named& named) { named.set(text); },
          [&](Off off) { *off.value = text != "yes"; }, [&](bool* flag) { *flag = text == "yes"; },
          [&](std::string* value) { *value = text; },
          [&](std::optional<std::string>* value) { *value = text; },
          [&]<class Number>(std::optional<Number>* number) { *number = number_of<Number>(text); },
          [&]<class Number>(Number* number) { *number = number_of<Number>(text); }},
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
