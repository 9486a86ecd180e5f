// Typed reading of one TOML table of a cluster file, with the line and the key in every refusal.
//
//   const TableReader reader(table, "c.toml", "level[0]");
//   reader.allow_only({"name", "count"});
//   reader.read_count("count", level.count, 1);
#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::cluster::detail {

/// Does not own the table. A key that is missing leaves the result as it was; everything else that is wrong throws ParseError.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string_view place, std::string path) : table_(table), place_(place), path_(std::move(path)) {}

  void allow_only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, node] : table_) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      throw ParseError(place_, line_of(node),
                       fmt::format("{}unknown key '{}', expected one of: {}", prefix(), key.str().substr(0, 60), fmt::join(keys, ", ")));
    }
  }

  void require(std::string_view key) const {
    if (!table_.contains(key)) throw ParseError(place_, line_of(table_), fmt::format("{}the key '{}' is missing", prefix(), key));
  }

  void read(std::string_view key, std::string& result) const {
    if (const toml::node* node = table_.get(key)) result = expect<std::string>(key, *node, "a string");
  }
  void read(std::string_view key, bool& result) const {
    if (const toml::node* node = table_.get(key)) result = expect<bool>(key, *node, "true or false");
  }
  void read_count(std::string_view key, int& result, int least) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const auto value = expect<int64_t>(key, *node, "an integer");
    if (value < least || value > INT_MAX) {
      fail(key, *node, fmt::format("expected an integer from {} to {}, found {}", least, INT_MAX, value));
    }
    result = static_cast<int>(value);
  }
  void read(std::string_view key, double& result) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    if (!node->is_number()) fail(key, *node, fmt::format("expected a number, found {}", type_of(*node)));
    result = *node->value<double>();
  }
  /// A quantity: text with a unit, or a plain integer in base units.
  template <class Parse>
  void read_quantity(std::string_view key, int64_t& result, Parse parse) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    std::string text;
    if (const auto* number = node->as_integer()) {
      text = std::to_string(number->get());
    } else {
      text = expect<std::string>(key, *node, "text with a unit or an integer");
    }
    check(key, [&] { result = parse(text); });
  }

  /// test(); what it objects to with a ConfigError is refused at the line of the key, or of the table without that key.
  template <class Test>
  void check(std::string_view key, Test test) const {
    const toml::node* node = table_.get(key);
    try {
      test();
    } catch (const ConfigError& error) {
      fail(key, node != nullptr ? *node : table_, error.what());
    }
  }

 private:
  static int64_t line_of(const toml::node& node) { return static_cast<int64_t>(node.source().begin.line); }

  static std::string type_of(const toml::node& node) {
    constexpr std::array<std::string_view, 11> kNames = {"nothing",   "a table", "an array", "a string",        "an integer",    "a float",
                                                         "a boolean", "a date",  "a time",   "a date and time", "something else"};
    return std::string(kNames[std::min(static_cast<size_t>(node.type()), kNames.size() - 1)]);
  }

  std::string prefix() const { return path_.empty() ? "" : path_ + ": "; }

  [[noreturn]] void fail(std::string_view key, const toml::node& node, std::string_view message) const {
    throw ParseError(place_, line_of(node), fmt::format("{}.{}: {}", path_, key, message));
  }

  template <class T>
  T expect(std::string_view key, const toml::node& node, std::string_view expected) const {
    if (const auto* value = node.as<T>()) return value->get();
    fail(key, node, fmt::format("expected {}, found {}", expected, type_of(node)));
  }

  const toml::table& table_;
  std::string_view place_;
  std::string path_;
};

}  // namespace penstock::cluster::detail
