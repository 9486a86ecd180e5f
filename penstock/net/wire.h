// Small values as text that travels: numbers in the byte order of the machine (all ranks of a job
// have the same one, hello.h), texts with their length in front.
//
//   WireWriter out;  out.put<int64_t>(7);  out.text("stage 1");
//   WireReader in(out.take());  in.get<int64_t>();  in.text();
//   Offer offer = from_wire<Offer>(to_wire(offer));      // a struct that lists its members
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
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
  /// Any of these.
  template <class T>
  void add(const T& value) {
    if constexpr (std::is_trivially_copyable_v<T>)
      put(value);
    else if constexpr (std::is_convertible_v<const T&, std::string_view>)
      text(value);
    else
      list(value);
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

/// Numbers, texts and lists of numbers, one behind the other.
template <class... Values>
std::string wire_text(const Values&... values) {
  WireWriter out;
  (out.add(values), ...);
  return out.take();
}

/// A struct as text. Its members are numbers, texts and lists of numbers, and it names them once:
/// `static auto members(auto& self) { return std::tie(self.pid, self.host); }`.
template <class T>
std::string to_wire(const T& value) {
  return std::apply([](const auto&... members) { return wire_text(members...); },
                    T::members(value));
}

/// What to_wire() wrote. Throws TransportError when the text is too short.
template <class T>
T from_wire(std::string_view text) {
  WireReader in(text);
  const auto get = [&in](auto& member) {
    using Member = std::decay_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::string>)
      member = in.text();
    else if constexpr (std::is_trivially_copyable_v<Member>)
      member = in.get<Member>();
    else
      member = in.list<typename Member::value_type>();
  };
  T value;
  std::apply([&get](auto&... members) { (get(members), ...); }, T::members(value));
  return value;
}

}  // namespace penstock::net
