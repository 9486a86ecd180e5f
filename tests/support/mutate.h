// Damaged copies of valid documents, for tests that a parser refuses or accepts whatever it is
// given but never crashes.
//
//   for (const std::string& text : mutants(valid, seed,
//       20)) EXPECT_NO_FATAL_FAILURE(parse_or_refuse(text));
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/util/numbers/rng.h"

namespace penstock::tests {

/// `text` with one to four random edits: a byte changed, a piece deleted, repeated or cut off, or a
/// troublesome token put in.
inline std::string mutant(std::string text, Rng& rng) {
  static constexpr std::array<std::string_view, 20> kTokens = {
      "1e999", "-1",
      "NaN",   "[",
      "{",     "null",
      "\"",    "9223372036854775808",
      "nan",   "1000000000000000000",
      "\n",    "]",
      "}",     "\xff",
      "true",  "[]",
      ":",     "\\u0000",
      "inf",   "=",
  };
  for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
    const size_t at = rng.below(text.size() + 1);
    const size_t length = rng.below(16);
    switch (rng.below(5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(rng.below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, kTokens[rng.below(kTokens.size())]);
        break;
      default:
        if (rng.below(4) == 0) text.resize(at);
        break;
    }
  }
  return text;
}

inline std::vector<std::string> mutants(const std::string& text, uint64_t seed, int count) {
  Rng rng(seed);
  std::vector<std::string> result;
  for (int i = 0; i < count; ++i) result.push_back(mutant(text, rng));
  return result;
}

/// The message with which `call` throws an `Error`; a note that it threw nothing otherwise. Other
/// exceptions pass through.
template <class Error, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace penstock::tests
