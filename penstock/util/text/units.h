// Sizes, rates and times with units, as users write them and as reports show them. All results are
// integers in base units: bytes, bytes per second, nanoseconds.
//
//   parse_bytes("16GB") == 16'000'000'000;  parse_bytes("512MiB") == 536'870'912;
//       parse_bandwidth("10Gbps") == 1'250'000'000;
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// Bytes from "123", "1.5GB", "512MiB" (decimal kB MB GB TB PB, binary KiB MiB GiB TiB PiB; only
/// plain numbers may leave B out). Throws ConfigError naming `text` when it is malformed, negative
/// or above 2^62.
int64_t parse_bytes(std::string_view text);

/// Bytes per second from "12GB/s", "10Gbps" (bits), "800Mbit/s", "1000" (bytes per second). Throws
/// ConfigError as parse_bytes; zero is refused.
int64_t parse_bandwidth(std::string_view text);

/// Operations per second from "15.7TFLOP/s", "900 GFLOP/s" or a plain number. Throws ConfigError as
/// parse_bytes; zero is refused.
int64_t parse_flops(std::string_view text);

/// Nanoseconds from "5us", "1.5ms", "2s", "0", "40ns". A number without a unit is nanoseconds.
/// Throws ConfigError as parse_bytes.
int64_t parse_duration(std::string_view text);

/// "1.25 GB", "640 B" (decimal units, three significant digits).
std::string format_bytes(int64_t bytes);
/// "1.25 GB/s".
std::string format_bandwidth(int64_t bytes_per_s);
/// Of operations per second: "118 GFLOP/s".
std::string format_flops(int64_t flops_per_s);
/// "12.3 ms", "4.50 us", "1 min 05 s".
std::string format_duration(int64_t ns);

}  // namespace penstock
