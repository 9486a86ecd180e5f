// Small values as text that travels: numbers in the byte order of the machine (all ranks of a job
// have the same one, hello.h), texts with their length in front.
//
//   WireWriter out;  out.put<int64_t>(7);  out.text("stage 1");
//   WireReader in(out.take());  in.get<int64_t>();  in.text();
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::net {

class WireWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { out_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view text) {
    put<uint64_t>(text.size());
    out_.append(text);
  }
  template <class T>
  void list(const std::vector<T>& values) {
    put<uint64_t>(values.size());
    for (const T& value : values) put(value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads what a WireWriter wrote. Every call throws TransportError when less is left than it needs.
/// Holds a reference to the text.
class WireReader {
 public:
  explicit WireReader(std::string_view in) : in_(in) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return next(get<uint64_t>()); }
  template <class T>
  std::vector<T> list() {
    const auto count = get<uint64_t>();
    if (count > in_.size() / sizeof(T)) next(in_.size() + 1);
    std::vector<T> values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.push_back(get<T>());
    return values;
  }
  /// All that is left.
  std::string_view rest() { return next(in_.size()); }
  bool empty() const { return in_.empty(); }

 private:
  std::string_view next(uint64_t bytes) {
    if (bytes > in_.size()) throw TransportError("a message between ranks is too short");
    const std::string_view result = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return result;
  }

  std::string_view in_;
};

}  // namespace penstock::net
