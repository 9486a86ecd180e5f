#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <climits>
#include <initializer_list>

#include "penstock/cluster/cluster.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"
#include "penstock/util/units.h"

namespace penstock::cluster {

namespace {

// A cluster file has a handful of levels. The parser builds and destroys nested tables recursively, one call per dot or
// bracket, so what could nest is bounded together with the size.
constexpr size_t kMaxFileBytes = 64 * 1024;
constexpr int64_t kMaxNestingMarks = 2'000;

void check_text_bounds(std::string_view text, std::string_view place) {
  if (text.size() > kMaxFileBytes) {
    throw ParseError(place, 0, fmt::format("expected a cluster file of at most {} bytes, found {}", kMaxFileBytes, text.size()));
  }
  const auto marks = std::count_if(text.begin(), text.end(), [](char c) { return c == '.' || c == '[' || c == '{'; });
  if (marks > kMaxNestingMarks) {
    throw ParseError(place, 0, fmt::format("expected at most {} dots and brackets in a cluster file, found {}", kMaxNestingMarks, marks));
  }
}

/// A table of the document, with the checks and messages that every key needs.
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
  void read(std::string_view key, int& result) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const auto value = expect<int64_t>(key, *node, "an integer");
    if (value < 1 || value > INT_MAX) fail(key, *node, fmt::format("expected an integer of at least 1, found {}", value));
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
    try {
      result = parse(text);
    } catch (const ConfigError& error) {
      fail(key, *node, error.what());
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

Level read_level(const toml::table& table, std::string_view place, size_t position) {
  const TableReader reader(table, place, fmt::format("level[{}]", position));
  reader.allow_only({"name", "count", "bandwidth", "latency", "by_reference"});
  reader.require("count");
  reader.require("bandwidth");
  Level level;
  level.name = fmt::format("level{}", position);
  reader.read("name", level.name);
  reader.read("count", level.count);
  reader.read_quantity("bandwidth", level.bandwidth_bytes_per_s, parse_bandwidth);
  reader.read_quantity("latency", level.latency_ns, parse_duration);
  reader.read("by_reference", level.by_reference);
  return level;
}

Device read_device(const toml::table& table, std::string_view place) {
  const TableReader reader(table, place, "device");
  reader.allow_only({"name", "memory", "speed"});
  Device device;
  reader.read("name", device.name);
  reader.read_quantity("memory", device.memory_bytes, parse_bytes);
  reader.read("speed", device.speed);
  return device;
}

Cluster read_cluster(const toml::table& root, std::string_view place) {
  TableReader(root, place, "").allow_only({"level", "device"});
  Cluster cluster;
  const toml::array* levels = root["level"].as_array();
  if (levels == nullptr) throw ParseError(place, 0, "expected at least one [[level]] table");
  for (const toml::node& node : *levels) {
    const toml::table* table = node.as_table();
    if (table == nullptr) throw ParseError(place, node.source().begin.line, "expected every level to be a [[level]] table");
    cluster.levels.push_back(read_level(*table, place, cluster.levels.size()));
  }
  if (const toml::node* device = root.get("device")) {
    if (!device->is_table()) throw ParseError(place, device->source().begin.line, "expected [device] to be a table");
    cluster.device = read_device(*device->as_table(), place);
  }
  return cluster;
}

/// `value` in the largest unit that divides it, so that it reads back exactly.
std::string toml_quantity(int64_t value, std::initializer_list<std::string_view> units) {
  auto unit = units.begin();
  while (value != 0 && value % 1000 == 0 && std::next(unit) != units.end()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("\"{}{}\"", value, *unit);
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace

Cluster parse_cluster(std::string_view text, std::string_view place) {
  check_text_bounds(text, place);
  try {
    const toml::table root = toml::parse(text, place);
    Cluster cluster = read_cluster(root, place);
    validate(cluster);
    return cluster;
  } catch (const toml::parse_error& error) {
    throw ParseError(place, error.source().begin.line, fmt::format("not valid TOML: {}", error.description().substr(0, 300)));
  } catch (const ConfigError& error) {
    throw ParseError(place, 0, error.what());
  }
}

Cluster load_cluster(const std::filesystem::path& path) { return parse_cluster(read_file(path, kMaxFileBytes), path.string()); }

std::string to_toml(const Cluster& cluster) {
  std::string text;
  for (const Level& level : cluster.levels) {
    text += fmt::format("[[level]]\nname = {}\ncount = {}\nbandwidth = {}\nlatency = {}\n", toml_string(level.name), level.count,
                        toml_quantity(level.bandwidth_bytes_per_s, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}),
                        toml_quantity(level.latency_ns, {"ns", "us", "ms", "s"}));
    if (level.by_reference) text += "by_reference = true\n";
    text += '\n';
  }
  text += fmt::format("[device]\nname = {}\n", toml_string(cluster.device.name));
  if (cluster.device.memory_bytes > 0)
    text += fmt::format("memory = {}\n", toml_quantity(cluster.device.memory_bytes, {"B", "kB", "MB", "GB", "TB", "PB"}));
  return text + fmt::format("speed = {}\n", cluster.device.speed);
}

}  // namespace penstock::cluster
