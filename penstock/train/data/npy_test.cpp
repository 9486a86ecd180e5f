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

TEST(Npy, ReadsNumbersOfEveryType) {
  const auto values = [](const std::string& type, const std::string& bytes) {
    return parse_npy(make_npy(type, "(2,)", bytes), "x.npy");
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
  EXPECT_TRUE(parse_npy(npy_of({1.5F, -2}, "(2,)"), "x.npy")
                  .equal(at::tensor(std::vector<float>{1.5F, -2})));
  const std::string halves("\x00\x3c\x00\xc0", 4);  // 1, -2
  EXPECT_TRUE(values("<f2", halves).to(at::kFloat).equal(at::tensor(std::vector<float>{1, -2})));
}

TEST(Npy, ColumnsMayComeFirst) {
  const std::string row_major = npy_of({1, 2, 3, 4, 5, 6}, "(2, 3)");
  std::string column_major = npy_of({1, 4, 2, 5, 3, 6}, "(2, 3)");
  const size_t at = column_major.find("False");
  column_major.replace(at, 5, "True ");
  EXPECT_TRUE(parse_npy(row_major, "a").equal(parse_npy(column_major, "b")));
  EXPECT_EQ(parse_npy(npy_of({7}, "()"), "c").dim(), 0);
  EXPECT_EQ(parse_npy(npy_of({}, "(0, 3)"), "d").numel(), 0);
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

TEST(Npz, ReadsArraysByName) {
  const TestFolder folder;
  write_test_file(folder / "a.npz",
                  make_zip({{"x.npy", npy_of({1, 2}, "(2,)")}, {"y.npy", npy_of({3}, "(1,)")}}));
  const auto arrays = read_npz(folder / "a.npz");
  ASSERT_EQ(arrays.size(), 2);
  EXPECT_EQ(arrays.at("x").numel(), 2);
  EXPECT_EQ(arrays.at("y")[0].item<float>(), 3);
  write_test_file(folder / "b.npz", make_zip({{"readme", "hello"}}));
  EXPECT_THAT(message_of<ParseError>([&] { read_npz(folder / "b.npz"); }),
              HasSubstr("b.npz: readme: it is no .npy file"));
  // What its directory claims is not unpacked for a header that does not say the same.
  write_test_file(
      folder / "bomb.npz",
      make_zip({{"x.npy", npy_of({1}, "(1,)") + std::string(size_t{1} << 20, '\0')}}, true));
  EXPECT_THAT(message_of<ParseError>([&] { read_npz(folder / "bomb.npz"); }),
              HasSubstr("x.npy: its shape needs 4 bytes of numbers, it has 1048580"));
  write_test_file(folder / "c.npz", "PK");
  EXPECT_THAT(message_of<ConfigError>([&] { read_npz(folder / "c.npz"); }),
              HasSubstr("no zip archive"));
}

}  // namespace
}  // namespace penstock::train
