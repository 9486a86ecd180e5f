#include "penstock/plan/boundary_coding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/numbers/block_int8.h"

namespace penstock::plan {
namespace {

int64_t in_16_bits(int64_t numbers, int64_t, int64_t) { return saturating_mul(2, numbers); }

int64_t in_int8(int64_t numbers, int64_t, int64_t) {
  return saturating_add(numbers, saturating_mul(2, ceil_div(numbers, kInt8Block)));
}

/// `bytes`: of a number.
int64_t in_subspace(int64_t numbers, int64_t width, int64_t rank, int64_t bytes) {
  if (width <= rank) return saturating_mul(bytes, numbers);
  return saturating_mul(bytes, saturating_mul(numbers / width, rank));
}

constexpr std::array<CodingTraits, kNumCodings> kCodingRows = {{
    {.coding = Coding::Float32, .name = "float32", .summary = "as they are"},
    {.coding = Coding::BFloat16,
     .name = "bfloat16",
     .summary = "half of the bytes, 8 bits of each number's fraction",
     .bytes = in_16_bits,
     .ns_per_1000 = 110},
    {.coding = Coding::Float16,
     .name = "float16",
     .summary = "half of the bytes, 11 bits of each number's fraction up to 65,504",
     .bytes = in_16_bits,
     .ns_per_1000 = 75},
    {.coding = Coding::Int8,
     .name = "int8",
     .summary = "a quarter of the bytes, with a scale for each 64 numbers",
     .bytes = in_int8,
     .short_bytes = in_int8,
     .ns_per_1000 = 1000},
    {.coding = Coding::Subspace,
     .name = "subspace",
     .summary = "K numbers of each token, its coefficients in a fixed orthonormal basis",
     .takes_rank = true,
     .bytes = [](int64_t numbers, int64_t width,
                 int64_t rank) { return in_subspace(numbers, width, rank, 4); },
     .short_bytes = [](int64_t numbers, int64_t width,
                       int64_t rank) { return in_subspace(numbers, width, rank, 2); },
     .ns_per_1000 = 21},
}};

constexpr bool codings_in_order() {
  for (size_t i = 0; i < kCodingRows.size(); ++i) {
    if (static_cast<size_t>(kCodingRows[i].coding) != i) return false;
  }
  return true;
}
static_assert(codings_in_order());

int64_t parse_rank(std::string_view name, std::string_view text) {
  int64_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error == std::errc() && end == text.data() + text.size() && rank >= 1 && rank <= kMostRank)
    return rank;
  throw ConfigError(fmt::format("boundary coding '{}': expected a rank from 1 to {} behind '{}:'",
                                name.substr(0, 40), kMostRank, name.substr(0, name.find(':'))));
}

std::string coding_names() {
  std::string names;
  for (const CodingTraits& row : kCodingRows)
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", row.name, row.takes_rank ? ":K" : "");
  return names;
}

int64_t number_bytes(Precision precision) { return is_short(precision) ? 2 : 4; }

}  // namespace

std::span<const CodingTraits> codings() { return kCodingRows; }

const CodingTraits& traits(Coding coding) { return kCodingRows[static_cast<size_t>(coding)]; }

std::string to_string(const BoundaryCoding& coding) {
  const CodingTraits& row = traits(coding.kind);
  return row.takes_rank ? fmt::format("{}:{}", row.name, coding.rank) : std::string(row.name);
}

BoundaryCoding parse_boundary(std::string_view name) {
  const size_t colon = name.find(':');
  for (const CodingTraits& row : kCodingRows) {
    if (row.name != name.substr(0, colon)) continue;
    if (row.takes_rank) {
      const std::string_view rank =
          colon == std::string_view::npos ? std::string_view() : name.substr(colon + 1);
      return {.kind = row.coding, .rank = parse_rank(name, rank)};
    }
    if (colon == std::string_view::npos) return {.kind = row.coding};
  }
  throw ConfigError(fmt::format("unknown boundary coding '{}'; expected one of {}",
                                name.substr(0, 40), coding_names()));
}

std::optional<BoundaryCoding> parse_boundary_choice(std::string_view name) {
  if (name == "auto") return std::nullopt;
  return parse_boundary(name);
}

int64_t coded_bytes(const BoundaryCoding& coding, const CodedValues& values) {
  const CodingTraits& row = traits(coding.kind);
  const auto bytes = is_short(values.precision) ? row.short_bytes : row.bytes;
  if (bytes == nullptr) return values.bytes;
  const int64_t numbers = ceil_div(values.bytes, number_bytes(values.precision));
  return bytes(numbers, values.width, coding.rank);
}

int64_t coding_ns(const BoundaryCoding& coding, const CodedValues& values) {
  const int64_t numbers = values.bytes / number_bytes(values.precision);
  const int64_t ns_per_1000 =
      saturating_mul(traits(coding.kind).ns_per_1000, std::max<int64_t>(coding.rank, 1));
  return saturating_mul(numbers, ns_per_1000) / 1000;
}

}  // namespace penstock::plan
