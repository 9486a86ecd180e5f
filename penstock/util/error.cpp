#include "penstock/util/error.h"

#include <fmt/format.h>

namespace penstock {

namespace {

std::string located(std::string_view place, int64_t line, std::string_view message) {
  if (line > 0) return fmt::format("{}:{}: {}", place, line, message);
  return fmt::format("{}: {}", place, message);
}

}  // namespace

ParseError::ParseError(std::string_view place, int64_t line, std::string_view message)
    : Error(located(place, line, message)) {}

}  // namespace penstock
