#include "penstock/util/files/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "penstock/util/error.h"

namespace penstock {

namespace {

constexpr size_t kMaxDepth = 200;
constexpr int64_t kMaxValues = 50'000'000;
constexpr size_t kMaxShown = 60;

/// Builds the document from the parser's events. The library's own builder searches for every key
/// among the earlier ones, which is quadratic in the size of an object, and silently lets a second
/// value of a key replace the first.
class DocumentBuilder : public nlohmann::json_sax<Json> {
 public:
  DocumentBuilder(std::string_view text, std::string_view place) : text_(text), place_(place) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!open_.back().keys.insert(name).second) {
      throw ParseError(
          place_, 0,
          fmt::format("the key \"{}\" is given twice in one object", name.substr(0, kMaxShown)));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail_syntax(text_, place_, position, error.what());
  }

 private:
  struct Open {
    Json* value;
    std::unordered_set<std::string> keys;
  };

  bool add(Json value) {
    put(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() >= kMaxDepth)
      throw ParseError(place_, 0,
                       fmt::format("values are nested deeper than {} levels", kMaxDepth));
    open_.push_back({put(std::move(container)), {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  // The address stays valid while the value is open, because its siblings are added later.
  Json* put(Json value) {
    if (++count_ > kMaxValues)
      throw ParseError(place_, 0, fmt::format("more than {} values", kMaxValues));
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    // The base class appends without the search for an equal key.
    std::vector<Json::object_t::value_type>& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  std::string_view text_;
  std::string_view place_;
  Json root_;
  std::vector<Open> open_;
  std::string key_;
  int64_t count_ = 0;
};

/// A value for a message, always short.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (!value.is_string()) return value.dump();
  const std::string& text = value.get_ref<const std::string&>();
  const Json shortened = text.size() > kMaxShown ? text.substr(0, kMaxShown) + "..." : text;
  return shortened.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

void fail_syntax(std::string_view text, std::string_view place, size_t position,
                 std::string_view message) {
  const std::string_view before =
      text.substr(0, std::min(text.size(), position > 0 ? position - 1 : 0));
  // The library's own mark, "[json.exception.parse_error.101] ", does not help a reader.
  if (const size_t mark_end = message.find("] "); mark_end != std::string_view::npos)
    message.remove_prefix(mark_end + 2);
  throw ParseError(place, 1 + std::count(before.begin(), before.end(), '\n'),
                   fmt::format("not valid JSON: {}", message.substr(0, 200)));
}

Json parse_json(std::string_view text, std::string_view place) {
  DocumentBuilder builder(text, place);
  Json::sax_parse(text, &builder);
  return builder.take();
}

std::string to_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void JsonReader::fail(std::string_view message) const {
  throw ParseError(place_, 0,
                   path_.empty() ? std::string(message) : fmt::format("{}: {}", path_, message));
}

void JsonReader::expected(std::string_view what) const {
  fail(fmt::format("expected {}, found {}", what, shown(*value_)));
}

const Json* JsonReader::member(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  for (const auto& [name, value] : value_->get_ref<const Json::object_t&>()) {
    if (name == key) return &value;
  }
  return nullptr;
}

bool JsonReader::has(std::string_view key) const { return member(key) != nullptr; }

JsonReader JsonReader::at(std::string_view key) const {
  const Json* value = member(key);
  if (value == nullptr) fail(fmt::format("the key \"{}\" is missing", key));
  return {*value, place_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
}

std::optional<JsonReader> JsonReader::find(std::string_view key) const {
  const Json* value = member(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return at(key);
}

int64_t JsonReader::integer_or(std::string_view key, int64_t otherwise, int64_t least,
                               int64_t most) const {
  const auto value = find(key);
  return value ? value->integer(least, most) : otherwise;
}

std::string JsonReader::text_or(std::string_view key, std::string_view otherwise) const {
  const auto value = find(key);
  return value ? value->text() : std::string(otherwise);
}

std::vector<JsonReader> JsonReader::elements(int64_t max_count) const {
  if (!value_->is_array()) expected("an array");
  const auto count = static_cast<int64_t>(value_->size());
  if (count > max_count)
    fail(fmt::format("expected at most {} elements, found {}", max_count, count));
  std::vector<JsonReader> result;
  result.reserve(value_->size());
  for (const Json& element : *value_)
    result.push_back({element, place_, fmt::format("{}[{}]", path_, result.size())});
  return result;
}

int64_t JsonReader::integer(int64_t least, int64_t most) const {
  const auto refuse = [&] {
    if (least == INT64_MIN && most == INT64_MAX) expected("an integer of 64 bits");
    if (most == INT64_MAX) expected(fmt::format("an integer of at least {}", least));
    expected(fmt::format("an integer from {} to {}", least, most));
  };
  if (!value_->is_number_integer()) refuse();
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    refuse();
  const auto value = value_->get<int64_t>();
  if (value < least || value > most) refuse();
  return value;
}

double JsonReader::number() const {
  if (!value_->is_number()) expected("a number");
  const auto value = value_->get<double>();
  if (!std::isfinite(value)) expected("a finite number");
  return value;
}

bool JsonReader::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

std::string JsonReader::text() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}

void check_format(const JsonReader& root, std::string_view name, int64_t newest_version) {
  const std::string wanted = fmt::format("penstock-{}", name);
  if (!root.raw().is_object() || !root.has("format")) {
    root.fail(fmt::format("expected an object with \"format\": \"{}\": this is not such a document",
                          wanted));
  }
  const JsonReader format = root.at("format");
  if (const std::string found = format.text(); found != wanted) {
    format.fail(fmt::format("expected \"{}\", found {}", wanted, shown(format.raw())));
  }
  const JsonReader version = root.at("version");
  if (const int64_t found = version.integer(1); found > newest_version) {
    version.fail(fmt::format("version {} is newer than {}, the newest that this program reads",
                             found, newest_version));
  }
}

}  // namespace penstock
