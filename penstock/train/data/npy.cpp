#include "penstock/train/data/npy.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr int64_t kMaxArrayBytes = int64_t{1} << 36;
constexpr int64_t kMaxArchiveBytes = int64_t{1} << 40;
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

at::Tensor low_16_bits(const at::Tensor& stored) { return stored.to(at::kInt).bitwise_and(0xFFFF); }
at::Tensor low_32_bits(const at::Tensor& stored) {
  return stored.to(at::kLong).bitwise_and(int64_t{0xFFFFFFFF});
}
at::Tensor truths(const at::Tensor& stored) { return stored.ne(0); }
/// float8_e5m2 is the upper half of a float16.
at::Tensor upper_halves(const at::Tensor& stored) {
  return stored.to(at::kShort).bitwise_left_shift(8).view(at::kHalf);
}

/// ml_dtypes writes bfloat16 as "<V2" and float8_e5m2 as "<f1".
constexpr std::array kTypes = {
    NumberType{"b1", at::kByte, at::kBool, truths},
    NumberType{"u1", at::kByte, at::kByte},
    NumberType{"i1", at::kChar, at::kChar},
    NumberType{"i2", at::kShort, at::kShort},
    NumberType{"u2", at::kShort, at::kInt, low_16_bits},
    NumberType{"i4", at::kInt, at::kInt},
    NumberType{"u4", at::kInt, at::kLong, low_32_bits},
    NumberType{"i8", at::kLong, at::kLong},
    NumberType{"u8", at::kLong, at::kLong},
    NumberType{"f2", at::kHalf, at::kHalf},
    NumberType{"f4", at::kFloat, at::kFloat},
    NumberType{"f8", at::kDouble, at::kDouble},
    NumberType{"V2", at::kBFloat16, at::kBFloat16},
    NumberType{"f1", at::kByte, at::kHalf, upper_halves},
};

/// What an array is that has no numbers, in words.
std::string kind_of(std::string_view name) {
  const char kind = name.empty() ? '\0' : name.front();
  if (kind == 'O') return "Python's objects";
  if (kind == 'U' || kind == 'S') return "texts";
  if (kind == 'M' || kind == 'm') return "times";
  if (kind == 'c') return "complex numbers";
  if (name == "V1")
    return "a type of one byte that NumPy has no name for: float8, int4 or the like of ml_dtypes; "
           "save it as float32";
  return kind == 'V' ? "bytes without a type" : "a type that is not known";
}

const NumberType& type_of(const Header& header, const std::string& place) {
  std::string_view name = header.type;
  const char order = name.empty() ? '\0' : name.front();
  if (order == '>') {
    throw ParseError(place, 0,
                     fmt::format("its numbers are big-endian ('{}'); expected little-endian",
                                 printable(header.type)));
  }
  const bool has_order = order == '<' || order == '|' || order == '=';
  if (has_order) name.remove_prefix(1);
  for (const NumberType& type : kTypes) {
    // NumPy's own two bytes without a type are "|V2".
    if (type.name == name && (name != "V2" || order == '<')) return type;
  }
  throw ParseError(
      place, 0,
      fmt::format("its type is '{}', {}; expected numbers (b1, i1 to i8, u1 to u8, f2 to f8)",
                  printable(header.type), kind_of(name)));
}

/// Bytes of the elements; -1: more than kMaxArrayBytes.
int64_t bytes_of(const std::vector<int64_t>& shape, int64_t item) {
  int64_t bytes = item;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMaxArrayBytes) return -1;
  }
  return bytes;
}

/// `begin`: the file, or so much of it that its header is in it; `size`: of the whole file.
ArrayHeader header_of(std::string_view begin, int64_t size, const std::string& place) {
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
  Header found = HeaderReader(begin.substr(start, length), place).read();
  ArrayHeader header{.type = type_of(found, place),
                     .sizes = std::move(found.shape),
                     .column_major = found.column_major,
                     .start = start + length};
  header.num_bytes =
      bytes_of(header.sizes, static_cast<int64_t>(c10::elementSize(header.type.stored)));
  const int64_t there = size - static_cast<int64_t>(header.start);
  if (header.num_bytes < 0) {
    throw ParseError(place, 0,
                     fmt::format("its shape has more than {} bytes of numbers", kMaxArrayBytes));
  }
  if (header.num_bytes != there) {
    throw ParseError(
        place, 0,
        fmt::format("its shape needs {} bytes of numbers, it has {}", header.num_bytes, there));
  }
  return header;
}

/// The numbers behind a header.
StoredArray array_in(std::string_view bytes, std::shared_ptr<const void> owner,
                     const ArrayHeader& header, const std::string& place) {
  StoredArray array(bytes.data() + header.start, header.type, header.sizes, header.column_major,
                    std::move(owner));
  if (header.type.name != "u8" || header.num_bytes == 0) return array;
  const auto refuse_negative = [&](int64_t, const at::Tensor& block) {
    if (block.min().item<int64_t>() < 0)
      throw ParseError(place, 0, "it holds a number of 2^63 or more");
  };
  if (header.sizes.empty())
    refuse_negative(0, *array.plain());
  else
    array.each_block(refuse_negative);
  return array;
}

constexpr std::string_view kEnding = ".npy";

std::string place_text(const std::filesystem::path& path) { return printable(path.string()); }

}  // namespace

const NumberType& number_type(std::string_view name) {
  for (const NumberType& type : kTypes)
    if (type.name == name) return type;
  PENSTOCK_CHECK(false, name);
  return kTypes.front();
}

StoredArray parse_npy(std::string content, const std::string& place) {
  const auto owner = std::make_shared<const std::string>(std::move(content));
  return array_in(*owner, owner, header_of(*owner, std::ssize(*owner), place), place);
}

StoredArray read_npy(const std::filesystem::path& path) {
  const auto bytes = std::make_shared<const FileBytes>(path, kMaxArrayBytes);
  const std::string place = place_text(path);
  const std::string_view all = bytes->view();
  return array_in(all, bytes, header_of(all, std::ssize(all), place), place);
}

Npz::Npz(const std::filesystem::path& path) : path_(path), archive_(path.string(), "numpy.savez") {
  for (const auto& [member, size] : archive_.members()) {
    const std::string place = fmt::format("{}: {}", place_text(path), printable(member));
    if (!member.ends_with(kEnding)) continue;
    ArrayHeader& header = arrays_[member.substr(0, member.size() - kEnding.size())];
    try {
      header = header_of(archive_.begin(member, kMostHeaderBytes), size.bytes, place);
    } catch (const Error& error) {
      header.trouble = error.what();
    }
  }
}

int64_t Npz::memory_for(const std::string& name) const {
  const ZipMember& member = archive_.members().at(name + std::string(kEnding));
  if (member.is_deflated) return saturating_add(member.bytes, member.packed_bytes);
  // Columns cannot be read in parts where they are not aligned.
  const bool is_read = member.bytes < kMapFromBytes || arrays_.at(name).column_major;
  return is_read ? member.bytes : 0;
}

StoredArray Npz::read(const std::string& name) {
  const ArrayHeader& header = arrays_.at(name);
  if (!header.trouble.empty()) throw ConfigError(header.trouble);
  const std::string file = name + std::string(kEnding);
  const std::string place = fmt::format("{}: {}", place_text(path_), printable(file));
  const ZipMember& member = archive_.members().at(file);
  if (memory_for(name) > 0 || member.bytes == 0)
    return parse_npy(archive_.read(file, kMaxArrayBytes), place);
  if (!mapped_) mapped_ = std::make_shared<const FileBytes>(path_, kMaxArchiveBytes);
  const std::string_view bytes =
      mapped_->view().substr(static_cast<size_t>(member.offset), static_cast<size_t>(member.bytes));
  if (crc32_of(bytes) != member.crc32)
    throw ParseError(place, 0, "it is damaged: its check sum is wrong");
  return array_in(bytes, mapped_, header, place);
}

}  // namespace penstock::train
