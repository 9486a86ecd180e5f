// Words of the lines that launches of one job send each other (first_host.h).
#pragma once

#include <cstdint>
#include <istream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/launch/whole_number.h"

namespace penstock::launch {

/// The name and the version of the lines.
inline constexpr std::string_view kHello = "launch-1";

/// A word for any text: hexadecimal digits after an 'x'.
inline std::string secret_word(std::string_view secret) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string word = "x";
  for (const unsigned char c : secret) {
    word += kDigits[c >> 4];
    word += kDigits[c & 15];
  }
  return word;
}

/// The rest of the words, if all are whole numbers; nothing otherwise.
inline std::vector<int64_t> numbers_in(std::istream& words) {
  std::vector<int64_t> numbers;
  for (std::string word; words >> word;) {
    const auto number = whole_number(word);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

/// A host's ranks: those that train, then its servers.
inline std::vector<int> numbers_from(int first_rank, int ranks, int first_server, int servers) {
  std::vector<int> numbers(static_cast<size_t>(ranks + servers));
  std::iota(numbers.begin(), numbers.begin() + ranks, first_rank);
  std::iota(numbers.begin() + ranks, numbers.end(), first_server);
  return numbers;
}

}  // namespace penstock::launch
