#include "penstock/util/text/plural.h"

#include <fmt/format.h>

namespace penstock {

std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with("tch") ? "es" : "s");
}

}  // namespace penstock
