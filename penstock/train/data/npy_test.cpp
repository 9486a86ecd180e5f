#include "penstock/train/data/npy.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/test_npy.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using testing::HasSubstr;

at::Tensor numbers_of(const StoredArray& array) {
  return array.sizes().empty() ? *array.plain() : array.block(0, array.size());
}

TEST(Npy, ReadsNumbersOfEveryType) {
  const auto values = [](const std::string& type, const std::string& bytes) {
    return numbers_of(parse_npy(make_npy(type, "(2,)", bytes), "x.npy"));
  };
  const at::Tensor expected = at::tensor(std::vector<int64_t>{1, 2});
  for (const auto& [type, width] : {std::pair("|u1", 1),
                                    {"|i1", 1},
                                    {"<i2", 2},
                                    {"<u2", 2},
                                    {"<i4", 4},
                                    {"<u4", 4},
                                    {"<i8", 8},
                                    {"<u8", 8}}) {
    SCOPED_TRACE(type);
    std::string bytes(2 * static_cast<size_t>(width), '\0');
    bytes[0] = 1;
    bytes[static_cast<size_t>(width)] = 2;
    EXPECT_TRUE(values(type, bytes).to(at::kLong).equal(expected));
  }
  EXPECT_TRUE(values("<u2", std::string("\xff\xff\x00\x80", 4))
                  .equal(at::tensor(std::vector<int>{0xFFFF, 0x8000},
                                    at::TensorOptions().dtype(at::kInt))));
  const std::string large("\xff\xff\xff\xff\0\0\0\0", 8);
  EXPECT_EQ(values("<u4", large)[0].item<int64_t>(), 0xFFFFFFFF);
  EXPECT_TRUE(values("|b1", std::string("\x01\x00", 2))
                  .equal(at::tensor(std::vector<uint8_t>{1, 0}).to(at::kBool)));
  EXPECT_TRUE(numbers_of(parse_npy(npy_of({1.5F, -2}, "(2,)"), "x.npy"))
                  .equal(at::tensor(std::vector<float>{1.5F, -2})));
  const std::string halves("\x00\x3c\x00\xc0", 4);  // 1, -2
  EXPECT_TRUE(values("<f2", halves).to(at::kFloat).equal(at::tensor(std::vector<float>{1, -2})));
}

TEST(Npy, ColumnsMayComeFirst) {
  const std::string row_major = npy_of({1, 2, 3, 4, 5, 6}, "(2, 3)");
  std::string column_major = npy_of({1, 4, 2, 5, 3, 6}, "(2, 3)");
  const size_t at = column_major.find("False");
  column_major.replace(at, 5, "True ");
  EXPECT_TRUE(
      numbers_of(parse_npy(row_major, "a")).equal(numbers_of(parse_npy(column_major, "b"))));
  EXPECT_EQ(parse_npy(npy_of({7}, "()"), "c").sizes().size(), 0);
  EXPECT_EQ(parse_npy(npy_of({}, "(0, 3)"), "d").size(), 0);
}

TEST(Npy, RefusesWhatIsDamaged) {
  const auto refusal = [](const std::string& content) {
    return message_of<ParseError>([&] { parse_npy(content, "x.npy"); });
  };
  const std::string good = npy_of({1, 2}, "(2,)");
  EXPECT_THAT(refusal(""), HasSubstr("x.npy: it is no .npy file"));
  EXPECT_THAT(refusal(good.substr(0, 9)), HasSubstr("no .npy file"));
  EXPECT_THAT(refusal(good.substr(0, 40)), HasSubstr("cut off in its header"));
  EXPECT_THAT(refusal(good.substr(0, good.size() - 1)),
              HasSubstr("its shape needs 8 bytes of numbers, it has 7"));
  EXPECT_THAT(refusal(good + "x"), HasSubstr("it has 9"));
  EXPECT_THAT(refusal(make_npy("|O", "(1,)", "x")), HasSubstr("its type is '|O'"));
  EXPECT_THAT(refusal(make_npy(">f4", "(1,)", "abcd")), HasSubstr("big-endian"));
  EXPECT_THAT(refusal(make_npy("<f4", "(-1,)", "")), HasSubstr("expected a size"));
  EXPECT_THAT(refusal(make_npy("<f4", "(4294967296, 4294967296)", "")), HasSubstr("more than"));
  EXPECT_THAT(refusal(make_npy("<u8", "(1,)", std::string(8, '\xff'))), HasSubstr("2^63"));
  std::string other = good;
  other[6] = 9;
  EXPECT_THAT(refusal(other), HasSubstr("version 9"));
  // Any byte of the header may be wrong.
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char wrong : {'\0', '(', '\xff'}) {
      std::string text = good;
      text[i] = wrong;
      try {
        parse_npy(text, "x.npy");
      } catch (const ParseError&) {
      }
    }
  }
}

TEST(Npy, ReadsTheShortFloatsOfMlDtypes) {
  // What numpy.save writes of ml_dtypes' bfloat16 and float8_e5m2 arrays 1, -2.5.
  const auto values = [](const std::string& type, const std::string& bytes) {
    return numbers_of(parse_npy(make_npy(type, "(2,)", bytes), "x.npy")).to(at::kFloat);
  };
  const at::Tensor expected = at::tensor(std::vector<float>{1, -2.5F});
  EXPECT_TRUE(values("<V2", std::string("\x80\x3f\x20\xc0", 4)).equal(expected));
  EXPECT_TRUE(values("<f1", std::string("\x3c\xc1", 2)).equal(expected));
}

TEST(Npy, SaysWhatATypeIsThatHasNoNumbers) {
  const auto refusal = [](const std::string& type, int width) {
    return message_of<ParseError>([&] {
      parse_npy(make_npy(type, "(1,)", std::string(static_cast<size_t>(width), 'x')), "x.npy");
    });
  };
  EXPECT_THAT(refusal("<V1", 1),
              HasSubstr("its type is '<V1', a type of one byte that NumPy has no "
                        "name for: float8, int4 or the like of ml_dtypes"));
  EXPECT_THAT(refusal("|V2", 2), HasSubstr("'|V2', bytes without a type"));
  EXPECT_THAT(refusal("|O", 8), HasSubstr("'|O', Python's objects"));
  EXPECT_THAT(refusal("<U5", 20), HasSubstr("'<U5', texts"));
  EXPECT_THAT(refusal("<c8", 8), HasSubstr("'<c8', complex numbers"));
  EXPECT_THAT(refusal("<M8[ns]", 8), HasSubstr("'<M8[ns]', times"));
}

/// A file of `bytes` numbers that are mostly 0 and take no disk: `begin`, then nothing, then `end`.
void write_long_file(const std::filesystem::path& path, const std::string& begin, int64_t bytes,
                     const std::string& end) {
  write_test_file(path, begin);
  std::filesystem::resize_file(path,
                               static_cast<uintmax_t>(std::ssize(begin) + bytes) - end.size());
  std::ofstream(path, std::ios::binary | std::ios::app) << end;
}

TEST(Npy, LargeFilesStayOnTheDisk) {
  const TestFolder folder;
  constexpr int64_t kRows = int64_t{1} << 33;  // 16 GB: more than the machine has
  write_long_file(folder / "tokens.npy", make_npy("<u2", fmt::format("({},)", kRows), ""),
                  2 * kRows, "\xff\xff");
  const StoredArray tokens = read_npy(folder / "tokens.npy");
  EXPECT_EQ(tokens.size(), kRows);
  EXPECT_EQ(tokens.block(kRows - 1, 1).item<int64_t>(), 0xFFFF);
  EXPECT_EQ(tokens.rows(at::tensor({kRows - 2, kRows - 1})).sum().item<int64_t>(), 0xFFFF);
}

TEST(Npz, ReadsArraysByName) {
  const TestFolder folder;
  write_test_file(folder / "a.npz",
                  make_zip({{"x.npy", npy_of({1, 2}, "(2,)")}, {"y.npy", npy_of({3}, "(1,)")}}));
  Npz file(folder / "a.npz");
  ASSERT_EQ(file.arrays().size(), 2);
  EXPECT_EQ(file.read("x").size(), 2);
  EXPECT_EQ(file.read("y").block(0, 1).item<float>(), 3);
  write_test_file(folder / "b.npz", make_zip({{"readme", "hello"}}));
  EXPECT_TRUE(Npz(folder / "b.npz").arrays().empty());
  write_test_file(folder / "c.npz", "PK");
  EXPECT_THAT(message_of<ConfigError>([&] { Npz{folder / "c.npz"}; }), HasSubstr("no zip archive"));
}

TEST(Npz, ArraysThatNobodyReadsMayBeOfAnyKind) {
  const TestFolder folder;
  write_test_file(folder / "a.npz", make_zip({{"x.npy", npy_of({1, 2}, "(2,)")},
                                              {"names.npy", make_npy("<U1", "(1,)", "abcd")},
                                              {"meta.npy", make_npy("|O", "()", "pickle")}}));
  Npz file(folder / "a.npz");
  EXPECT_EQ(file.read("x").size(), 2);
  EXPECT_THAT(message_of<ConfigError>([&] { file.read("meta"); }),
              HasSubstr("a.npz: meta.npy: its type is '|O', Python's objects"));
}

TEST(Npz, SizesAreComparedBeforeAnythingIsUnpacked) {
  const TestFolder folder;
  // What its directory claims is not unpacked for a header that does not say the same.
  write_test_file(
      folder / "bomb.npz",
      make_zip({{"x.npy", npy_of({1}, "(1,)") + std::string(size_t{1} << 20, '\0')}}, true));
  Npz file(folder / "bomb.npz");
  EXPECT_THAT(message_of<ConfigError>([&] { file.read("x"); }),
              HasSubstr("x.npy: its shape needs 4 bytes of numbers, it has 1048580"));
}

TEST(Npz, LargeStoredArraysStayOnTheDiskAndNeedNoAlignment) {
  const TestFolder folder;
  std::vector<float> numbers(size_t{1} << 22);  // 16 MiB
  numbers.back() = 7;
  const std::string x = npy_of(numbers, fmt::format("({}, 2)", numbers.size() / 2));
  write_test_file(folder / "a.npz", make_zip({{"o.npy", npy_of({1, 2}, "(2,)")}, {"x.npy", x}}));
  Npz file(folder / "a.npz");
  EXPECT_EQ(file.memory_for("x"), 0);
  EXPECT_GT(file.memory_for("o"), 0);
  const StoredArray array = file.read("x");
  EXPECT_EQ(array.plain(), nullptr) << "it begins at an odd place";
  const at::Tensor last = array.rows(at::tensor(std::vector<int64_t>{array.size() - 1}));
  EXPECT_TRUE(last.equal(at::tensor(std::vector<float>{0, 7}).view({1, 2})));
  // Damage is noticed as in an array that is read at once.
  std::string damaged = read_test_file(folder / "a.npz");
  damaged[damaged.size() / 2] ^= 1;
  write_test_file(folder / "b.npz", damaged);
  Npz other(folder / "b.npz");
  EXPECT_THAT(message_of<ParseError>([&] { other.read("x"); }), HasSubstr("check sum is wrong"));
}

}  // namespace
}  // namespace penstock::train
