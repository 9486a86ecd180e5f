#include "penstock/options/run_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <type_traits>

#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/toml_table.h"
#include "penstock/util/files/toml_text.h"
#include "penstock/util/text/near_names.h"
#include "penstock/util/text/printable.h"

namespace penstock::options {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 1 << 20;

/// The value as on a command line; nothing: a flag that is off. Throws ConfigError for another type
/// than the slot's.
std::optional<std::string> value_text(const toml::node& node, const Slot& slot) {
  const auto refuse = [&](std::string_view expected) {
    throw ConfigError(fmt::format("expected {}, found {}", expected, toml_type(node)));
  };
  const auto* flag = node.as_boolean();
  const auto* whole = node.as_integer();
  const auto* real = node.as_floating_point();
  const auto* text = node.as_string();
  return std::visit(
      [&](const auto& place) -> std::optional<std::string> {
        using Place = std::decay_t<decltype(place)>;
        bool stands_alone = std::is_same_v<Place, bool*> || std::is_same_v<Place, Off>;
        constexpr bool is_named = std::is_same_v<Place, Named>;
        if constexpr (is_named) stands_alone = place.stands_alone;
        constexpr bool is_text = is_named || std::is_same_v<Place, std::string*> ||
                                 std::is_same_v<Place, std::optional<std::string>*>;
        constexpr bool is_real =
            std::is_same_v<Place, double*> || std::is_same_v<Place, std::optional<double>*>;
        if (stands_alone && flag != nullptr)
          return flag->get() ? std::optional<std::string>("") : std::nullopt;
        if constexpr (is_text) {
          if (text != nullptr && text->get().empty())
            throw ConfigError("expected a value, found an empty one");
          if (text != nullptr) return text->get();
          if (is_named && whole != nullptr) return fmt::to_string(whole->get());
          if (is_named && real != nullptr) return fmt::to_string(real->get());
          refuse(stands_alone ? "a string, true or false" : "a string");
        } else if constexpr (is_real) {
          if (whole != nullptr) return fmt::to_string(whole->get());
          if (real != nullptr) return fmt::to_string(real->get());
          refuse("a number");
        } else if (stands_alone) {
          refuse("true or false");
        } else {
          if (whole != nullptr) return fmt::to_string(whole->get());
          // A seed may be larger than TOML's integers.
          if (std::is_same_v<Place, uint64_t*> && text != nullptr) return text->get();
          refuse("an integer");
        }
        return std::nullopt;
      },
      slot);
}

/// As the parser of the command line, but with the line.
void check_bounds(const Slot& slot, const std::string& value, double least, double most,
                  bool may_be_infinite) {
  const bool is_whole = std::holds_alternative<int*>(slot) ||
                        std::holds_alternative<int64_t*>(slot) ||
                        std::holds_alternative<uint64_t*>(slot) ||
                        std::holds_alternative<std::optional<int64_t>*>(slot);
  const bool is_real =
      std::holds_alternative<double*>(slot) || std::holds_alternative<std::optional<double>*>(slot);
  if (!is_whole && !is_real) return;
  const double number = std::strtod(value.c_str(), nullptr);
  if (std::isnan(number)) throw ConfigError("expected a number, found nan");
  if (is_real && std::isinf(number) && !may_be_infinite)
    throw ConfigError(fmt::format("expected a finite number, found {}", value));
  if (number >= least && number <= most) return;
  throw ConfigError(fmt::format("expected a {}number {}, found {}", is_whole ? "whole " : "",
                                std::isinf(most) ? fmt::format("of at least {}", least)
                                                 : fmt::format("from {} to {}", least, most),
                                value));
}

/// Relative to the folder of the run file.
std::string beside(const std::string& value, const fs::path& folder) {
  if (fs::path(value).is_absolute() || folder.empty()) return value;
  return (folder / value).lexically_normal().string();
}

std::string absolute_path(const std::string& value) {
  std::error_code error;
  const fs::path whole = fs::absolute(value, error);
  if (error)
    throw ConfigError(fmt::format("cannot tell where '{}' lies: {}", value, error.message()));
  return whole.lexically_normal().string();
}

template <class Request>
const RowOf<Request>& row_of(std::string_view key) {
  std::vector<std::string> names;
  for (const RowOf<Request>& row : rows_of<Request>()) {
    if (row.section == Section::File) continue;
    if (row.name.substr(2) == key) return row;
    names.emplace_back(row.name.substr(2));
  }
  throw ConfigError(fmt::format("unknown option '{}', the nearest is '{}'",
                                printable(key.substr(0, 60)),
                                near_names(std::string(key.substr(0, 60)), names, 1).front()));
}

template <class Request>
std::optional<FileOption> option_of(std::string_view key, const toml::node& node,
                                    const fs::path& folder) {
  if (node.is_table() || node.is_array_of_tables()) {
    throw ConfigError(
        fmt::format("expected options, found the table '{}': a run file has no tables",
                    printable(key.substr(0, 60))));
  }
  const RowOf<Request>& row = row_of<Request>(key);
  Request scratch;
  const Slot slot = row.slot(scratch);
  try {
    const std::optional<std::string> value = value_text(node, slot);
    if (!value) return std::nullopt;
    if (!is_flag(slot)) {
      set_text(slot, *value);
      check_bounds(slot, *value, row.least, row.most, row.may_be_infinite);
    }
    const bool is_path = row.is_path != nullptr && row.is_path(*value);
    return FileOption{row.name, is_path ? beside(*value, folder) : *value, toml_line(node)};
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", key, error.what()));
  }
}

std::string toml_value(const Slot& slot, const std::string& text) {
  if (is_flag(slot)) return "true";
  const bool is_text = std::holds_alternative<Named>(slot) ||
                       std::holds_alternative<std::string*>(slot) ||
                       std::holds_alternative<std::optional<std::string>*>(slot);
  constexpr size_t kMostDigits = 18;
  const bool is_large = std::holds_alternative<uint64_t*>(slot) && text.size() > kMostDigits;
  return is_text || is_large ? toml_string(text) : text;
}

}  // namespace

template <class Request>
std::vector<FileOption> parse_run_file(std::string_view text, const std::string& path) {
  const toml::table root = parse_toml(
      text, path, {.what = "a run file", .most_bytes = kMostBytes, .most_nesting = 20'000});
  std::vector<std::pair<std::string_view, const toml::node*>> values;
  for (const auto& [key, node] : root) values.emplace_back(key.str(), &node);
  std::stable_sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
    return toml_line(*a.second) < toml_line(*b.second);
  });
  std::vector<FileOption> options;
  for (const auto& [key, node] : values) {
    try {
      if (auto one = option_of<Request>(key, *node, fs::path(path).parent_path()))
        options.push_back(std::move(*one));
    } catch (const ConfigError& error) {
      throw ParseError(path, toml_line(*node), error.what());
    }
  }
  return options;
}

template <class Request>
std::vector<FileOption> read_run_file(const std::string& path) {
  // It is read more than once: by the tool and its training part, and by every rank of a job.
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
    throw ConfigError(fmt::format("--config: expected a file, found a pipe or device: '{}'", path));
  return parse_run_file<Request>(read_file(path, kMostBytes), path);
}

template <class Request>
std::string run_file_text(const Request& request, std::span<const std::string_view> given,
                          bool (*wanted)(const RowOf<Request>& row)) {
  Request copy = request;
  Request usual;
  std::string text;
  std::optional<Section> section;
  for (const RowOf<Request>& row : rows_of<Request>()) {
    if (row.section == Section::File || (wanted != nullptr && !wanted(row))) continue;
    const Slot slot = row.slot(copy);
    std::string value = text_of(slot);
    const bool is_given = std::find(given.begin(), given.end(), row.name) != given.end();
    if (value.empty() || (!is_given && value == text_of(row.slot(usual)))) continue;
    if (is_flag(slot) && value == "no") continue;
    if (row.is_path != nullptr && row.is_path(value)) value = absolute_path(value);
    if (section != row.section)
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", to_string(row.section));
    section = row.section;
    text += fmt::format("{} = {}\n", row.name.substr(2), toml_value(slot, value));
  }
  return text;
}

template std::vector<FileOption> read_run_file<TrainRequest>(const std::string&);
template std::vector<FileOption> parse_run_file<TrainRequest>(std::string_view, const std::string&);
template std::string run_file_text(const TrainRequest&, std::span<const std::string_view>,
                                   bool (*)(const RowOf<TrainRequest>&));
template std::vector<FileOption> read_run_file<StreamRequest>(const std::string&);
template std::vector<FileOption> parse_run_file<StreamRequest>(std::string_view,
                                                               const std::string&);
template std::string run_file_text(const StreamRequest&, std::span<const std::string_view>,
                                   bool (*)(const RowOf<StreamRequest>&));
template std::vector<FileOption> read_run_file<ProfileRequest>(const std::string&);
template std::vector<FileOption> parse_run_file<ProfileRequest>(std::string_view,
                                                                const std::string&);
template std::string run_file_text(const ProfileRequest&, std::span<const std::string_view>,
                                   bool (*)(const RowOf<ProfileRequest>&));

}  // namespace penstock::options
