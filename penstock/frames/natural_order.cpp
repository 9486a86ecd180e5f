#include "penstock/frames/natural_order.h"

#include <algorithm>
#include <cstddef>

namespace penstock::frames {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes the digits at the front of the text, without leading zeros.
std::string_view take_number(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
  return number;
}

}  // namespace

bool is_naturally_before(std::string_view a, std::string_view b) {
  std::string_view left = a;
  std::string_view right = b;
  while (!left.empty() && !right.empty()) {
    if (is_digit(left.front()) && is_digit(right.front())) {
      const std::string_view left_number = take_number(left);
      const std::string_view right_number = take_number(right);
      if (left_number.size() != right_number.size())
        return left_number.size() < right_number.size();
      if (left_number != right_number) return left_number < right_number;
    } else if (left.front() != right.front()) {
      return static_cast<unsigned char>(left.front()) < static_cast<unsigned char>(right.front());
    } else {
      left.remove_prefix(1);
      right.remove_prefix(1);
    }
  }
  if (left.empty() != right.empty()) return left.empty();
  return a < b;
}

}  // namespace penstock::frames
