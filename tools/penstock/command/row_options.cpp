#include "tools/penstock/command/row_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "penstock/util/error.h"
#include "tools/penstock/command/command.h"

namespace penstock::tool {

namespace {

using options::Named;
using options::Off;

CLI::Option* add_named_value(CLI::App& app, const std::string& name, const Named& value,
                             const std::string& help) {
  const auto set = [value, name](const std::string& text) {
    parse_option(name + ":", text, [&](const std::string& one) {
      value.set(one);
      return true;
    });
  };
  CLI::Option* const option =
      app.add_option_function<std::string>(name, set, help)->type_name("TEXT");
  option->default_str(value.text());
  if (value.stands_alone) option->expected(0, 1);
  if (value.hints_at_help) {
    option->check([value](const std::string& text) -> std::string {
      try {
        value.set(text);
        return {};
      } catch (const ConfigError& error) {
        return error.what();
      }
    });
  }
  return option;
}

/// The conversion to an unsigned number would wrap around.
std::string refuse_negative(const std::string& text) {
  return text.find('-') == std::string::npos
             ? std::string()
             : fmt::format("expected a whole number of at least 0, found '{}'", text);
}

CLI::Option* add_value(CLI::App& app, const std::string& name, const options::Slot& slot,
                       const std::string& help) {
  return std::visit(
      [&](auto place) -> CLI::Option* {
        using Place = decltype(place);
        if constexpr (std::is_same_v<Place, bool*>) {
          return app.add_flag(name, *place, help);
        } else if constexpr (std::is_same_v<Place, Off>) {
          return app.add_flag_callback(
              name, [place] { *place.value = false; }, help);
        } else if constexpr (std::is_same_v<Place, Named>) {
          return add_named_value(app, name, place, help);
        } else {
          CLI::Option* const option = app.add_option(name, *place, help);
          if constexpr (std::is_same_v<Place, uint64_t*>) option->check(refuse_negative);
          return option;
        }
      },
      slot);
}

void check_bounds(CLI::Option& option, const options::Slot& slot, double least, double most) {
  if (std::isinf(least)) return;
  if (std::holds_alternative<double*>(slot) ||
      std::holds_alternative<std::optional<double>*>(slot)) {
    option.check(CLI::Range(least, most));
  } else {
    option.check(whole_number(static_cast<int64_t>(least),
                              std::isinf(most) ? INT64_MAX : static_cast<int64_t>(most)));
  }
}

}  // namespace

template <class Request>
void add_rows(CLI::App& app, Request& request) {
  for (const options::RowOf<Request>& row : options::rows_of<Request>()) {
    const options::Slot slot = row.slot(request);
    std::string name(row.name);
    if (!row.letter.empty()) name = std::string(row.letter) + ',' + name;
    CLI::Option* const option = add_value(app, name, slot, row.help);
    check_bounds(*option, slot, row.least, row.most);
    option->required(row.is_required);
    if (const std::string usual = options::usual_text(row); !usual.empty())
      option->default_str(usual);
  }
  for (const options::RowOf<Request>& row : options::rows_of<Request>()) {
    CLI::Option* const option = app.get_option(std::string(row.name));
    for (const std::string_view other : row.excludes)
      option->excludes(app.get_option(std::string(other)));
    if (!row.needs.empty()) option->needs(app.get_option(std::string(row.needs)));
  }
}

template <class Request>
std::vector<std::string_view> given_rows(const CLI::App& app) {
  std::vector<std::string_view> given;
  for (const options::RowOf<Request>& row : options::rows_of<Request>()) {
    const CLI::Option* const option = app.get_option_no_throw(std::string(row.name));
    if (option != nullptr && !option->empty()) given.push_back(row.name);
  }
  return given;
}

template std::vector<std::string_view> given_rows<options::TrainRequest>(const CLI::App&);
template std::vector<std::string_view> given_rows<options::StreamRequest>(const CLI::App&);
template std::vector<std::string_view> given_rows<options::ProfileRequest>(const CLI::App&);
template void add_rows(CLI::App& app, options::TrainRequest& request);
template void add_rows(CLI::App& app, options::StreamRequest& request);
template void add_rows(CLI::App& app, options::ProfileRequest& request);
template void add_rows(CLI::App& app, options::SearchRequest& request);

}  // namespace penstock::tool
