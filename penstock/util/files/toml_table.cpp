#include "penstock/util/files/toml_table.h"

#include <algorithm>
#include <array>
#include <climits>

namespace penstock {

int64_t toml_line(const toml::node& node) { return static_cast<int64_t>(node.source().begin.line); }

std::string_view toml_type(const toml::node& node) {
  constexpr std::array<std::string_view, 11> kNames = {
      "nothing",   "a table", "an array", "a string",        "an integer",    "a float",
      "a boolean", "a date",  "a time",   "a date and time", "something else"};
  return kNames[std::min(static_cast<size_t>(node.type()), kNames.size() - 1)];
}

toml::table parse_toml(std::string_view text, std::string_view place, const TomlBounds& bounds) {
  if (text.size() > bounds.most_bytes) {
    throw ParseError(place, 0,
                     fmt::format("expected {} of at most {} bytes, found {}", bounds.what,
                                 bounds.most_bytes, text.size()));
  }
  const auto marks = std::count_if(text.begin(), text.end(),
                                   [](char c) { return c == '.' || c == '[' || c == '{'; });
  if (marks > bounds.most_nesting) {
    throw ParseError(place, 0,
                     fmt::format("expected at most {} dots and brackets in {}, found {}",
                                 bounds.most_nesting, bounds.what, marks));
  }
  try {
    return toml::parse(text, place);
  } catch (const toml::parse_error& error) {
    throw ParseError(place, error.source().begin.line,
                     fmt::format("not valid TOML: {}", error.description().substr(0, 300)));
  }
}

const toml::table* toml_table_of(const toml::table& root, std::string_view key,
                                 std::string_view place) {
  const toml::node* node = root.get(key);
  if (node == nullptr) return nullptr;
  if (!node->is_table())
    throw ParseError(place, toml_line(*node), fmt::format("expected [{}] to be a table", key));
  return node->as_table();
}

std::vector<const toml::table*> toml_tables_of(const toml::table& root, std::string_view key,
                                               std::string_view place) {
  std::vector<const toml::table*> tables;
  const toml::node* node = root.get(key);
  if (node == nullptr) return tables;
  const auto refuse = [&](const toml::node& what) {
    throw ParseError(place, toml_line(what),
                     fmt::format("expected '{}' to be [[{}]] tables", key, key));
  };
  if (!node->is_array()) refuse(*node);
  for (const toml::node& element : *node->as_array()) {
    if (!element.is_table()) refuse(element);
    tables.push_back(element.as_table());
  }
  return tables;
}

std::string TomlTable::name_of(std::string_view key) const {
  return fmt::format("{}{}{}", path_, path_.empty() ? "" : ".", key);
}

std::string TomlTable::prefix() const { return path_.empty() ? "" : path_ + ": "; }

void TomlTable::fail(std::string_view key, const toml::node& node, std::string_view message) const {
  throw ParseError(place_, toml_line(node), fmt::format("{}: {}", name_of(key), message));
}

template <class T>
T TomlTable::expect(std::string_view key, const toml::node& node, std::string_view expected) const {
  if (const auto* value = node.as<T>()) return value->get();
  fail(key, node, fmt::format("expected {}, found {}", expected, toml_type(node)));
}

void TomlTable::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, node] : table_) {
    if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
    throw ParseError(place_, toml_line(node),
                     fmt::format("{}unknown key '{}', expected one of: {}", prefix(),
                                 key.str().substr(0, 60), fmt::join(keys, ", ")));
  }
}

void TomlTable::require(std::string_view key) const {
  if (!table_.contains(key))
    throw ParseError(place_, toml_line(table_),
                     fmt::format("{}the key '{}' is missing", prefix(), key));
}

void TomlTable::read(std::string_view key, std::string& result) const {
  if (const toml::node* node = table_.get(key))
    result = expect<std::string>(key, *node, "a string");
}

void TomlTable::read(std::string_view key, bool& result) const {
  if (const toml::node* node = table_.get(key)) result = expect<bool>(key, *node, "true or false");
}

void TomlTable::read(std::string_view key, int64_t& result) const {
  if (const toml::node* node = table_.get(key)) result = expect<int64_t>(key, *node, "an integer");
}

void TomlTable::read(std::string_view key, double& result) const {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return;
  if (!node->is_number())
    fail(key, *node, fmt::format("expected a number, found {}", toml_type(*node)));
  result = *node->value<double>();
}

void TomlTable::read_count(std::string_view key, int& result, int least) const {
  const toml::node* node = table_.get(key);
  if (node == nullptr) return;
  const auto value = expect<int64_t>(key, *node, "an integer");
  if (value < least || value > INT_MAX) {
    fail(key, *node,
         fmt::format("expected an integer from {} to {}, found {}", least, INT_MAX, value));
  }
  result = static_cast<int>(value);
}

std::string TomlTable::quantity(std::string_view key) const {
  const toml::node& node = *table_.get(key);
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  return expect<std::string>(key, node, "text with a unit or an integer");
}

}  // namespace penstock
