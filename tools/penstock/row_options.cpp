#include "tools/penstock/row_options.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "penstock/util/error.h"
#include "tools/penstock/command.h"

namespace penstock::tool {

namespace {

using options::Named;
using options::Off;
using options::Row;

CLI::Option* add_value(CLI::App& app, const Row& row, const options::Slot& slot) {
  const std::string name(row.name);
  return std::visit(
      [&](auto place) -> CLI::Option* {
        using Place = decltype(place);
        if constexpr (std::is_same_v<Place, bool*>) {
          return app.add_flag(name, *place, row.help);
        } else if constexpr (std::is_same_v<Place, Off>) {
          return app.add_flag_callback(
              name, [place] { *place.value = false; }, row.help);
        } else if constexpr (std::is_same_v<Place, Named>) {
          const auto set = [place, name](const std::string& text) {
            parse_option(name + ":", text, [&](const std::string& value) {
              place.set(value);
              return true;
            });
          };
          return app.add_option_function<std::string>(name, set, row.help)
              ->type_name("TEXT")
              ->default_str(place.text());
        } else {
          CLI::Option* const option = app.add_option(name, *place, row.help);
          if constexpr (std::is_same_v<Place, uint64_t*>) {
            // The conversion to an unsigned number would wrap around.
            option->check([](const std::string& text) {
              return text.find('-') == std::string::npos
                         ? std::string()
                         : fmt::format("expected a whole number of at least 0, found '{}'", text);
            });
          }
          return option;
        }
      },
      slot);
}

}  // namespace

void add_rows(CLI::App& app, options::TrainRequest& request,
              const std::vector<std::string_view>& without) {
  const auto is_out = [&](std::string_view name) {
    return std::find(without.begin(), without.end(), name) != without.end();
  };
  for (const Row& row : options::train_rows()) {
    if (is_out(row.name)) continue;
    CLI::Option* const option = add_value(app, row, row.slot(request));
    if (row.least != INT64_MIN) option->check(whole_number(row.least, row.most));
    option->required(row.is_required);
    // What is usual is said, where it is not "not chosen".
    const std::string usual = options::text_of(row, {});
    if (!options::is_flag(row) && !usual.empty() && usual != "0") option->default_str(usual);
  }
  for (const Row& row : options::train_rows()) {
    if (is_out(row.name)) continue;
    CLI::Option* const option = app.get_option(std::string(row.name));
    for (const std::string_view other : row.excludes)
      if (!is_out(other)) option->excludes(app.get_option(std::string(other)));
    if (!row.needs.empty()) option->needs(app.get_option(std::string(row.needs)));
  }
}

std::vector<std::string_view> given_rows(const CLI::App& app) {
  std::vector<std::string_view> given;
  for (const Row& row : options::train_rows()) {
    const CLI::Option* const option = app.get_option_no_throw(std::string(row.name));
    if (option != nullptr && !option->empty()) given.push_back(row.name);
  }
  return given;
}

}  // namespace penstock::tool
