#include "penstock/util/text/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "penstock/util/error.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock {

namespace {

using Wide = unsigned __int128;

/// `name` means multiplier / divisor base units.
struct Unit {
  std::string_view name;
  int64_t multiplier;
  int64_t divisor = 1;
};

constexpr int64_t kKilo = 1'000, kMega = 1'000'000, kGiga = 1'000'000'000,
                  kTera = 1'000'000'000'000, kPeta = 1'000'000'000'000'000;
constexpr int64_t kKibi = int64_t{1} << 10, kMebi = int64_t{1} << 20, kGibi = int64_t{1} << 30,
                  kTebi = int64_t{1} << 40, kPebi = int64_t{1} << 50;
constexpr Wide kLargest = Wide{1} << 62;

constexpr std::array kByteUnits = {
    Unit{"", 1},        Unit{"B", 1},       Unit{"kB", kKilo},  Unit{"KB", kKilo},
    Unit{"MB", kMega},  Unit{"GB", kGiga},  Unit{"TB", kTera},  Unit{"PB", kPeta},
    Unit{"KiB", kKibi}, Unit{"MiB", kMebi}, Unit{"GiB", kGibi}, Unit{"TiB", kTebi},
    Unit{"PiB", kPebi},
};

constexpr std::array kBandwidthUnits = {
    Unit{"", 1},
    Unit{"B/s", 1},
    Unit{"kB/s", kKilo},
    Unit{"KB/s", kKilo},
    Unit{"MB/s", kMega},
    Unit{"GB/s", kGiga},
    Unit{"TB/s", kTera},
    Unit{"KiB/s", kKibi},
    Unit{"MiB/s", kMebi},
    Unit{"GiB/s", kGibi},
    Unit{"TiB/s", kTebi},
    Unit{"bps", 1, 8},
    Unit{"kbps", kKilo, 8},
    Unit{"Mbps", kMega, 8},
    Unit{"Gbps", kGiga, 8},
    Unit{"Tbps", kTera, 8},
    Unit{"bit/s", 1, 8},
    Unit{"kbit/s", kKilo, 8},
    Unit{"Mbit/s", kMega, 8},
    Unit{"Gbit/s", kGiga, 8},
    Unit{"Tbit/s", kTera, 8},
};

constexpr std::array kFlopsUnits = {
    Unit{"", 1},
    Unit{"FLOP/s", 1},
    Unit{"kFLOP/s", kKilo},
    Unit{"MFLOP/s", kMega},
    Unit{"GFLOP/s", kGiga},
    Unit{"TFLOP/s", kTera},
    Unit{"PFLOP/s", kPeta},
};

constexpr std::array kDurationUnits = {
    Unit{"", 1},      Unit{"ns", 1},           Unit{"us", kKilo},       Unit{"ms", kMega},
    Unit{"s", kGiga}, Unit{"min", 60 * kGiga}, Unit{"h", 3600 * kGiga},
};

/// A decimal number as digits / 10^places.
struct Decimal {
  Wide digits = 0;
  Wide scale = 1;
};

/// Takes the number at the front of `text` off; nothing when there is none or it has more than 18
/// digits.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal number;
  int digits = 0;
  bool after_point = false;
  size_t used = 0;
  for (; used < text.size(); ++used) {
    const char c = text[used];
    if (c == '.' && !after_point && digits > 0) {
      after_point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    if (number.digits > 0 || c != '0' || digits == 0) ++digits;
    if (digits > 19 || number.scale > Wide{1'000'000'000'000'000'000}) return std::nullopt;
    number.digits = number.digits * 10 + static_cast<Wide>(c - '0');
    if (after_point) number.scale *= 10;
  }
  if (digits == 0 || text[used - 1] == '.') return std::nullopt;
  text.remove_prefix(used);
  return number;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// Printable and short, for messages.
std::string shown(std::string_view text) {
  std::string result(text.substr(0, 60));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  }
  return text.size() > 60 ? result + "..." : result;
}

int64_t parse_quantity(std::string_view text, std::span<const Unit> units,
                       std::string_view expected) {
  const auto refuse = [&](std::string_view why) {
    throw ConfigError(fmt::format("'{}': expected {}{}", shown(text), expected, why));
  };
  std::string_view rest = trim(text);
  const std::optional<Decimal> number = take_decimal(rest);
  if (!number) refuse("");
  rest = trim(rest);
  for (const Unit& unit : units) {
    if (unit.name != rest) continue;
    // At most 19 digits times 2^52: far below the limit of 128 bits.
    const Wide divisor = number->scale * static_cast<Wide>(unit.divisor);
    const Wide value =
        (number->digits * static_cast<Wide>(unit.multiplier) + divisor / 2) / divisor;
    if (value > kLargest) refuse("; this is above 2^62");
    return static_cast<int64_t>(value);
  }
  refuse(fmt::format("; the unit '{}' is not known", shown(rest)));
  return 0;
}

/// Three significant digits of a value in [0, 1000).
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

/// `value` in the largest of the units (each 1000 times the one before) that leaves at least 1.
std::string format_scaled(int64_t value, std::span<const std::string_view> units) {
  const std::string_view sign = value < 0 ? "-" : "";
  double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude < 1000) return fmt::format("{}{:.0f} {}", sign, magnitude, units.front());
  size_t unit = 0;
  // 999.5 would be shown as 1000.
  while (magnitude >= 999.5 && unit + 1 < units.size()) {
    magnitude /= 1000;
    ++unit;
  }
  return fmt::format("{}{} {}", sign, three_digits(magnitude), units[unit]);
}

}  // namespace

int64_t parse_bytes(std::string_view text) {
  return parse_quantity(text, kByteUnits, "a size such as 16GB, 512MiB or a plain number of bytes");
}

int64_t parse_bandwidth(std::string_view text) {
  constexpr std::string_view kExpected =
      "a bandwidth above zero (at least 1 byte per second) such as 12GB/s, 10Gbps or a plain "
      "number of bytes per second";
  const int64_t bytes_per_s = parse_quantity(text, kBandwidthUnits, kExpected);
  if (bytes_per_s == 0) throw ConfigError(fmt::format("'{}': expected {}", shown(text), kExpected));
  return bytes_per_s;
}

int64_t parse_flops(std::string_view text) {
  constexpr std::string_view kExpected =
      "a speed above zero such as 15.7TFLOP/s, 900GFLOP/s or a plain number of operations per "
      "second";
  const int64_t flops_per_s = parse_quantity(text, kFlopsUnits, kExpected);
  if (flops_per_s == 0) throw ConfigError(fmt::format("'{}': expected {}", shown(text), kExpected));
  return flops_per_s;
}

int64_t parse_duration(std::string_view text) {
  return parse_quantity(text, kDurationUnits,
                        "a time such as 5us, 1.5ms, 2s or a plain number of nanoseconds");
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<std::string_view, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  return format_scaled(bytes, kUnits);
}

std::string format_bandwidth(int64_t bytes_per_s) { return format_bytes(bytes_per_s) + "/s"; }

std::string format_flops(int64_t flops_per_s) {
  std::string text = format_bytes(flops_per_s);
  text.pop_back();  // "118 GB" counts the same way
  return text + "FLOP/s";
}

std::string format_duration(int64_t ns) {
  constexpr std::array<std::string_view, 4> kUnits = {"ns", "us", "ms", "s"};
  const double seconds = std::fabs(static_cast<double>(ns)) / 1e9;
  if (seconds < 59.95) return format_scaled(ns, kUnits);
  const std::string_view sign = ns < 0 ? "-" : "";
  const auto whole = nearest(seconds);
  if (whole < 3600) return fmt::format("{}{} min {:02} s", sign, whole / 60, whole % 60);
  return fmt::format("{}{} h {:02} min", sign, whole / 3600, whole % 3600 / 60);
}

}  // namespace penstock
