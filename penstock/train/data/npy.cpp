#include "penstock/train/data/npy.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/zip_archive.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr int64_t kMaxArrayBytes = int64_t{1} << 36;
constexpr size_t kMaxDimensions = 32;
constexpr int64_t kMostHeaderBytes = 1 << 17;  ///< of a member of an archive; numpy's are shorter

/// The header is the text of a Python dictionary:
/// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
struct Header {
  std::string type;
  bool column_major = false;
  std::vector<int64_t> shape;
};

class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  Header read() {
    Header header;
    std::array<bool, 3> found{};
    expect('{');
    while (!take('}')) {
      const std::string key = in_quotes();
      expect(':');
      if (key == "descr") {
        if (peek() == '[') fail("its elements are records, expected numbers");
        header.type = in_quotes();
        found[0] = true;
      } else if (key == "fortran_order") {
        header.column_major = truth();
        found[1] = true;
      } else if (key == "shape") {
        header.shape = sizes();
        found[2] = true;
      } else {
        fail(fmt::format("unknown key '{}' in its header", printable(key)));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!found[0] || !found[1] || !found[2]) fail("its header lacks a type, an order or a shape");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw ParseError(place_, 0, why); }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail(fmt::format("damaged header: expected '{}'", wanted));
  }
  std::string in_quotes() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("damaged header: expected a name in quotes");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("damaged header: a quote does not end");
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  bool truth() {
    skip();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::string_view(word).size();
      return value;
    }
    fail("damaged header: expected True or False");
  }
  std::vector<int64_t> sizes() {
    std::vector<int64_t> shape;
    expect('(');
    while (!take(')')) {
      skip();
      int64_t size = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) fail("damaged header: expected a size");
      if (shape.size() == kMaxDimensions) fail("it has more than 32 dimensions");
      at_ = static_cast<size_t>(end - text_.data());
      shape.push_back(size);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
};

/// A type of NumPy's and how its numbers come into a tensor.
struct ElementType {
  std::string_view name;
  at::ScalarType stored;  ///< of the same width
  at::ScalarType becomes;
};
constexpr std::array kTypes = {
    ElementType{"b1", at::kBool, at::kBool},   ElementType{"u1", at::kByte, at::kByte},
    ElementType{"i1", at::kChar, at::kChar},   ElementType{"i2", at::kShort, at::kShort},
    ElementType{"u2", at::kShort, at::kInt},   ElementType{"i4", at::kInt, at::kInt},
    ElementType{"u4", at::kInt, at::kLong},    ElementType{"i8", at::kLong, at::kLong},
    ElementType{"u8", at::kLong, at::kLong},   ElementType{"f2", at::kHalf, at::kHalf},
    ElementType{"f4", at::kFloat, at::kFloat}, ElementType{"f8", at::kDouble, at::kDouble},
};

const ElementType& type_of(const Header& header, const std::string& place) {
  std::string_view name = header.type;
  const char order = name.empty() ? '\0' : name.front();
  if (order == '>') {
    throw ParseError(place, 0,
                     fmt::format("its numbers are big-endian ('{}'); expected little-endian",
                                 printable(header.type)));
  }
  if (order == '<' || order == '|' || order == '=') name.remove_prefix(1);
  for (const ElementType& type : kTypes) {
    if (type.name == name) return type;
  }
  throw ParseError(
      place, 0,
      fmt::format("its type is '{}'; expected numbers (b1, i1 to i8, u1 to u8, f2 to f8)",
                  printable(header.type)));
}

/// Bytes of the elements; -1: more than kMaxArrayBytes.
int64_t bytes_of(const std::vector<int64_t>& shape, int64_t item) {
  int64_t bytes = item;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMaxArrayBytes) return -1;
  }
  return bytes;
}

/// Numbers without a sign, which were read as ones with it.
at::Tensor widened(const at::Tensor& array, const ElementType& type, const std::string& place) {
  if (type.name == "u2") return array.to(at::kInt).bitwise_and(0xFFFF);
  if (type.name == "u4") return array.to(at::kLong).bitwise_and(int64_t{0xFFFFFFFF});
  if (type.name == "u8" && array.numel() > 0 && array.min().item<int64_t>() < 0)
    throw ParseError(place, 0, "it holds a number of 2^63 or more");
  return array;
}

/// What the first bytes of a file say.
struct Layout {
  Header header;
  ElementType type;
  size_t start = 0;       ///< of the numbers
  int64_t num_bytes = 0;  ///< of them
};

/// `begin`: the file, or so much of it that its header is in it; `size`: of the whole file.
Layout layout_of(std::string_view begin, int64_t size, const std::string& place) {
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(begin[at])); };
  if (begin.size() < 10 || !begin.starts_with(kMagic))
    throw ParseError(place, 0, "it is no .npy file (numpy.save)");
  const size_t version = byte(6);
  if (version < 1 || version > 3)
    throw ParseError(place, 0, fmt::format("its format is version {}, expected 1 to 3", version));
  const size_t start = version == 1 ? 10 : 12;
  if (begin.size() < start) throw ParseError(place, 0, "it is cut off");
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > begin.size() - start) throw ParseError(place, 0, "it is cut off in its header");
  Layout layout{.header = HeaderReader(begin.substr(start, length), place).read(),
                .type = {},
                .start = start + length};
  layout.type = type_of(layout.header, place);
  layout.num_bytes =
      bytes_of(layout.header.shape, static_cast<int64_t>(c10::elementSize(layout.type.stored)));
  const int64_t found = size - static_cast<int64_t>(layout.start);
  if (layout.num_bytes < 0) {
    throw ParseError(place, 0,
                     fmt::format("its shape has more than {} bytes of numbers", kMaxArrayBytes));
  }
  if (layout.num_bytes != found) {
    throw ParseError(
        place, 0,
        fmt::format("its shape needs {} bytes of numbers, it has {}", layout.num_bytes, found));
  }
  return layout;
}

std::string place_text(const std::filesystem::path& path) { return printable(path.string()); }

}  // namespace

at::Tensor parse_npy(std::string content, const std::string& place) {
  const Layout layout = layout_of(content, static_cast<int64_t>(content.size()), place);
  std::vector<int64_t> sizes = layout.header.shape;
  if (layout.header.column_major) std::reverse(sizes.begin(), sizes.end());
  const auto memory = std::make_shared<std::string>(std::move(content));
  char* const first = memory->data() + layout.start;
  const bool is_aligned =
      reinterpret_cast<uintptr_t>(first) % c10::elementSize(layout.type.stored) == 0;
  at::Tensor array = at::from_blob(
      first, sizes, [memory](void*) {}, at::TensorOptions().dtype(layout.type.stored));
  if (!is_aligned) {
    array = at::empty(sizes, at::TensorOptions().dtype(layout.type.stored));
    std::memcpy(array.data_ptr(), first, static_cast<size_t>(layout.num_bytes));
  }
  if (layout.type.stored == at::kBool)
    array = at::from_blob(
                first, sizes, [memory](void*) {}, at::kByte)
                .ne(0);
  array = widened(array, layout.type, place);
  if (layout.header.column_major) {
    std::vector<int64_t> order(sizes.size());
    std::iota(order.rbegin(), order.rend(), int64_t{0});
    array = array.permute(order).contiguous();
  }
  return array;
}

at::Tensor read_npy(const std::filesystem::path& path) {
  return parse_npy(read_file(path, kMaxArrayBytes), place_text(path));
}

std::map<std::string, at::Tensor> read_npz(const std::filesystem::path& path) {
  ZipArchive archive(path.string(), "numpy.savez");
  std::map<std::string, at::Tensor> arrays;
  for (const auto& [member, size] : archive.members()) {
    const std::string place = fmt::format("{}: {}", place_text(path), printable(member));
    if (!member.ends_with(".npy")) throw ParseError(place, 0, "it is no .npy file (numpy.savez)");
    const std::string begin = archive.begin(member, kMostHeaderBytes);
    layout_of(begin, size.bytes, place);  // before memory is taken for what the file claims
    arrays.emplace(member.substr(0, member.size() - 4),
                   parse_npy(archive.read(member, kMaxArrayBytes), place));
  }
  return arrays;
}

}  // namespace penstock::train
