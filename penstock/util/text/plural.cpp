#include "penstock/util/text/plural.h"

#include <fmt/format.h>

namespace penstock {

std::string plural(int64_t count, std::string_view noun) {
  const bool takes_es = noun.ends_with("tch") || noun.ends_with("ss");
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : takes_es ? "es" : "s");
}

}  // namespace penstock
