#include "penstock/captions/npy_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/files/file_bytes.h"
#include "penstock/util/text/printable.h"

namespace penstock::captions {

namespace {

static_assert(std::endian::native == std::endian::little, "files have their lowest byte first");

constexpr std::string_view kMagic = "\x93NUMPY";

/// What stands behind 'key': in the header.
std::string_view value_in(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

/// "(16, 4096)"; empty where it is no such pair.
std::vector<int64_t> sizes_in(std::string_view text) {
  std::vector<int64_t> sizes;
  if (!text.starts_with('(')) return {};
  text = text.substr(1, text.find(')') - 1);
  while (!text.empty()) {
    int64_t size = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 1) return {};
    sizes.push_back(size);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
  }
  return sizes;
}

template <class Number>
std::vector<float> values_of(std::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(Number));
  for (size_t i = 0; i < values.size(); ++i) {
    Number number;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    values[i] = static_cast<float>(number);
  }
  return values;
}

/// The text of the header, and where the numbers begin.
std::pair<std::string_view, size_t> header_of(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 12) return {};
  const bool is_short = bytes[6] == 1;
  const size_t begin = is_short ? 10 : 12;
  size_t length = 0;
  for (size_t i = begin; i-- > 8;) length = length * 256 + static_cast<unsigned char>(bytes[i]);
  if (length > bytes.size() - begin) return {};
  return {bytes.substr(begin, length), begin + length};
}

}  // namespace

NpyRows read_npy_rows(const std::filesystem::path& file) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const FileBytes all(file, kMost);
  const auto [header, begin] = header_of(all.view());
  if (header.empty()) throw ParseError(file.string(), 0, "expected a file of NumPy (.npy)");
  const std::string_view type = value_in(header, "descr").substr(0, 5);
  const std::vector<int64_t> sizes = sizes_in(value_in(header, "shape"));
  const bool is_float = type == "'<f4'";
  const bool is_double = type == "'<f8'";
  const bool is_plain = value_in(header, "fortran_order").starts_with("False");
  if (sizes.size() != 2 || !(is_float || is_double) || !is_plain)
    throw ParseError(
        file.string(), 0,
        fmt::format("expected float32 or float64 of [frames, numbers], row by row; found {}",
                    printable(std::string(header.substr(0, 120)))));
  const std::string_view numbers = all.view().substr(begin);
  const int64_t width = is_float ? 4 : 8;
  // No product of sizes from outside.
  const auto count = std::ssize(numbers) / width;
  if (std::ssize(numbers) % width != 0 || count % sizes[1] != 0 || count / sizes[1] != sizes[0])
    throw ParseError(file.string(), 0,
                     fmt::format("expected {} numbers, found {} bytes", fmt::join(sizes, " x "),
                                 numbers.size()));
  return {.rows = sizes[0],
          .numbers = sizes[1],
          .values = is_float ? values_of<float>(numbers) : values_of<double>(numbers)};
}

NpyWriter::NpyWriter(std::filesystem::path file, std::string_view type,
                     const std::vector<int64_t>& sizes)
    : file_(std::move(file)), partial_(file_.string() + ".part"), out_(partial_, std::ios::binary) {
  if (!out_) throw ConfigError(fmt::format("{} cannot be written", printable(partial_.string())));
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                   type, fmt::join(sizes, ", "), sizes.size() == 1 ? "," : "");
  // Numbers begin at a multiple of 64.
  header.append(63 - (kMagic.size() + 4 + header.size()) % 64, ' ');
  header += '\n';
  std::string begin(kMagic);
  begin +=
      {'\1', '\0', static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  add(begin + header);
}

NpyWriter::~NpyWriter() {
  if (!out_.is_open()) return;
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void NpyWriter::check() const {
  if (!out_)
    throw RuntimeError(
        fmt::format("{} could not be written: is the disk full?", printable(partial_.string())));
}

void NpyWriter::add(std::string_view bytes) {
  out_.write(bytes.data(), std::ssize(bytes));
  check();
}

void NpyWriter::finish() {
  out_.close();
  check();
  std::filesystem::rename(partial_, file_);
}

}  // namespace penstock::captions
