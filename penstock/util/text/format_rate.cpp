#include "penstock/util/text/format_rate.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

namespace penstock {

std::string format_rate(double per_s) {
  if (!std::isfinite(per_s)) return "-";
  if (per_s >= 1e12 || per_s < 0.9995) return fmt::format("{:.3g}", per_s);
  if (per_s < 99.95) return fmt::format("{:.{}f}", per_s, per_s < 9.995 ? 2 : 1);
  std::string digits = fmt::format("{:.0f}", per_s);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace penstock
