#include "penstock/captions/npy_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"

namespace penstock::captions {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using text::TestFolder;

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

TEST(NpyRows, ReadsWhatTheWriterWrites) {
  const TestFolder folder;
  NpyWriter writer(folder.path() / "x.npy", "<f4", {2, 3});
  writer.add(bytes_of<float>({1, 2, 3}));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "x.npy"));
  writer.add(bytes_of<float>({4, 5, 6.5}));
  writer.finish();
  const NpyRows rows = read_npy_rows(folder.path() / "x.npy");
  EXPECT_EQ(rows.rows, 2);
  EXPECT_EQ(rows.numbers, 3);
  EXPECT_THAT(rows.values, ElementsAre(1, 2, 3, 4, 5, 6.5));
  EXPECT_EQ(folder.read("x.npy").find('{'), 10u);
  EXPECT_EQ((folder.read("x.npy").size() - 24) % 64, 0u);
}

// python -c "import numpy, sys; sys.stdout.buffer.write(...)" of numpy.save, NumPy 2.
TEST(NpyRows, ReadsDoubles) {
  const TestFolder folder;
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }";
  header.append(118 - 1 - header.size(), ' ');
  header += '\n';
  folder.write("x.npy", std::string("\x93NUMPY\1\0", 8) + std::string("v\0", 2) + header +
                            bytes_of<double>({0.5, -2}));
  EXPECT_THAT(read_npy_rows(folder.path() / "x.npy").values, ElementsAre(0.5, -2));
}

TEST(NpyRows, RefusesOtherFiles) {
  const TestFolder folder;
  const auto refused = [&](const std::string& bytes) {
    return [file = folder.write("x.npy", bytes)] { return read_npy_rows(file); };
  };
  EXPECT_THAT(refused("text"), ThrowsMessage<ParseError>(HasSubstr("expected a file of NumPy")));
  EXPECT_THAT(refused(std::string("\x93NUMPY\1\0\xff\xff{}", 12)),
              ThrowsMessage<ParseError>(HasSubstr("expected a file of NumPy")));
  for (const char* header :
       {"{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2), }", "{}"}) {
    const std::string text = header;
    const std::string bytes =
        std::string("\x93NUMPY\1\0", 8) + static_cast<char>(text.size()) + '\0' + text + "12345678";
    EXPECT_THROW(refused(bytes)(), ParseError) << header;
  }
}

TEST(NpyRows, AnUnfinishedFileIsNoFile) {
  const TestFolder folder;
  { NpyWriter writer(folder.path() / "x.npy", "|u1", {3}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(NpyWriter(folder.path() / "none" / "x.npy", "|u1", {3}), ConfigError);
}

}  // namespace
}  // namespace penstock::captions
