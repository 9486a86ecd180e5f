// What a fuzz target does with its bytes: parse them, where a ParseError is a good answer, and then
// prove that what was accepted survives being written and read again. Every other exception
// escapes, which the fuzzer reports as a crash.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::tests {

template <class Parse, class Rewrite>
int fuzz(const uint8_t* data, size_t size, Parse parse, Rewrite rewritten) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<decltype(parse(text, "fuzz"))> value;
  try {
    value = parse(text, "fuzz");
  } catch (const ParseError&) {
    return 0;
  }
  PENSTOCK_CHECK(rewritten(*value) == *value);
  return 0;
}

}  // namespace penstock::tests
