#include "penstock/probe/measurement_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/numbers/rounding.h"

namespace penstock::probe {

int64_t three_digits(double value, int64_t least) {
  if (!(value >= 1)) return least;
  if (value >= 0x1p62) return int64_t{1} << 62;
  const auto whole = nearest(value);
  int64_t unit = 1;
  while (whole / unit >= 1000) unit *= 10;
  return std::max(least, (whole + unit / 2) / unit * unit);
}

std::string measurement_line(std::string_view what, const Measurement& measured,
                             const std::function<std::string(int64_t)>& format) {
  const auto text = [&](double value) { return format(three_digits(value, 0)); };
  return fmt::format("{:<32} {:>12}   {} to {}, {} samples", what, text(measured.median),
                     text(measured.low), text(measured.high), measured.samples);
}

Json measurement_json(const Measurement& measured) {
  return {{"median", three_digits(measured.median, 0)},
          {"low", three_digits(measured.low, 0)},
          {"high", three_digits(measured.high, 0)},
          {"samples", measured.samples}};
}

std::string unsteady_note(std::string_view what, const Measurement& measured) {
  constexpr double kUnsteady = 0.3;
  if (measured.spread() <= kUnsteady) return {};
  return fmt::format(
      "{}: the middle half of the samples spans {:.0f} % of the median; was the machine busy?",
      what, 100 * measured.spread());
}

}  // namespace penstock::probe
