// Reads TOML files that people write: the input size is bounded, and every error names the line and
// the key.
//
//   const toml::table root = parse_toml(text, "c.toml", {.what = "a cluster file", .most_bytes =
//       65536, .most_nesting = 2000});
//   const TomlTable reader(*root.get_as<toml::table>("device"), "c.toml", "device");
//   reader.allow_only({"name", "count"});
//   reader.read_count("count", count, 1);
#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/util/error.h"

namespace penstock {

/// The parser builds and destroys nested tables recursively, one call per dot or bracket, so the
/// possible nesting is bounded together with the size.
struct TomlBounds {
  std::string_view what = "a file";
  size_t most_bytes = 0;
  int64_t most_nesting = 0;  ///< dots and opening brackets
};

/// Throws ParseError for text beyond the bounds and for text that is not TOML.
toml::table parse_toml(std::string_view text, std::string_view place, const TomlBounds& bounds);

/// Where the value stands in its text, from 1.
int64_t toml_line(const toml::node& node);
/// "a table", "an integer", ...: for messages.
std::string_view toml_type(const toml::node& node);

/// The table of [key], or nothing when the key is missing. Throws ParseError when it is not a
/// table.
const toml::table* toml_table_of(const toml::table& root, std::string_view key,
                                 std::string_view place);
/// The tables of [[key]], none when the key is missing. Throws ParseError when it is anything else.
std::vector<const toml::table*> toml_tables_of(const toml::table& root, std::string_view key,
                                               std::string_view place);

/// `path` is the table's own name, empty for the whole file. Does not own the table. A missing key
/// leaves the result unchanged; every other error throws ParseError.
class TomlTable {
 public:
  TomlTable(const toml::table& table, std::string_view place, std::string path)
      : table_(table), place_(place), path_(std::move(path)) {}

  void allow_only(std::initializer_list<std::string_view> keys) const;
  void require(std::string_view key) const;

  void read(std::string_view key, std::string& result) const;
  void read(std::string_view key, bool& result) const;
  void read(std::string_view key, int64_t& result) const;
  void read(std::string_view key, double& result) const;
  void read_count(std::string_view key, int& result, int least) const;

  /// A quantity: text with a unit, or a plain integer in base units.
  template <class Parse>
  void read_quantity(std::string_view key, int64_t& result, Parse parse) const {
    if (table_.contains(key)) check(key, [&] { result = parse(quantity(key)); });
  }

  /// Runs test() and turns its ConfigError into a ParseError at the line of the key, or of the
  /// table if the key is missing.
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
  std::string name_of(std::string_view key) const;
  std::string prefix() const;
  std::string quantity(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, const toml::node& node,
                         std::string_view message) const;
  template <class T>
  T expect(std::string_view key, const toml::node& node, std::string_view expected) const;

  const toml::table& table_;
  std::string_view place_;
  std::string path_;
};

}  // namespace penstock
