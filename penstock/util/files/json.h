// Reads and writes JSON, with errors that name the place: "plan.json: stages[2].replicas: expected
// an integer of at least 1, found \"x\"".
//
//   const Json document = parse_json(text, "plan.json");
//   JsonReader root(document, "plan.json");
//   for (JsonReader stage :
//       root.at("stages").elements()) replicas.push_back(stage.at("replicas").integer(1,
//       1'000'000));
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// Objects keep the order in which keys were added, so that files are readable and diffs are small.
using Json = nlohmann::ordered_json;

/// Parses a whole document. Throws ParseError(place, line, ...) on malformed text, nesting deeper
/// than 200, more than 50 million values, a key given twice in one object, numbers beyond the range
/// of double, or trailing bytes. O(size).
Json parse_json(std::string_view text, std::string_view place);

/// Throws ParseError with the parser's error at byte `position` (counted from 1) of `text`, and its
/// line.
[[noreturn]] void fail_syntax(std::string_view text, std::string_view place, size_t position,
                              std::string_view message);

/// The document as text, indented, with a newline at the end. Integers and doubles parse back to
/// the same values; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& document);

/// A typed, bounds-checked view of one value inside a document; does not own the document. Every
/// accessor throws ParseError naming the place and the path when the value has another type or is
/// outside the range.
class JsonReader {
 public:
  JsonReader(const Json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  bool has(std::string_view key) const;
  /// Member of an object; refuses a missing one.
  JsonReader at(std::string_view key) const;
  /// Member of an object, or nothing when it is missing or null.
  std::optional<JsonReader> find(std::string_view key) const;
  /// The same, with a value to use when it is missing or null.
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t least = INT64_MIN,
                     int64_t most = INT64_MAX) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  /// Elements of an array (at most `max_count`).
  std::vector<JsonReader> elements(int64_t max_count = 10'000'000) const;
  int64_t integer(int64_t least = INT64_MIN, int64_t most = INT64_MAX) const;
  /// A finite number.
  double number() const;
  bool boolean() const;
  std::string text() const;
  const Json& raw() const { return *value_; }
  /// Throws ParseError at this place.
  [[noreturn]] void fail(std::string_view message) const;

 private:
  JsonReader(const Json& value, std::string place, std::string path)
      : value_(&value), place_(std::move(place)), path_(std::move(path)) {}
  [[noreturn]] void expected(std::string_view what) const;
  const Json* member(std::string_view key) const;

  const Json* value_;
  std::string place_;
  std::string path_;
};

/// Checks the header that every Penstock document carries: {"format": "penstock-<name>", "version":
/// n}. Refuses newer versions.
void check_format(const JsonReader& root, std::string_view name, int64_t newest_version);

}  // namespace penstock
