#include "penstock/util/files/file_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "penstock/util/error.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();

class FileBytesTest : public testing::Test {
 protected:
  ~FileBytesTest() override { std::filesystem::remove(path_); }
  std::filesystem::path path_ = testing::TempDir() + "penstock-bytes-" + std::to_string(::getpid());
};

TEST_F(FileBytesTest, AreTheSameReadOrMapped) {
  std::ofstream(path_) << "begin";
  EXPECT_EQ(FileBytes(path_, kAnySize).view(), "begin");
  std::filesystem::resize_file(path_, kMapFromBytes);
  std::ofstream(path_, std::ios::app) << "end";
  const FileBytes bytes(path_, kAnySize);
  ASSERT_EQ(std::ssize(bytes.view()), kMapFromBytes + 3);
  EXPECT_TRUE(bytes.view().starts_with("begin"));
  EXPECT_TRUE(bytes.view().ends_with("end"));
}

TEST_F(FileBytesTest, WhatCannotBeReadIsNamed) {
  const auto refusal = [&](int64_t most) {
    try {
      FileBytes(path_, most);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(kAnySize), HasSubstr(path_.string()));
  std::ofstream(path_) << "begin";
  std::filesystem::resize_file(path_, kMapFromBytes);
  EXPECT_THAT(refusal(1000), HasSubstr(path_.string()));
}

TEST(RequireMemory, SaysWhatNeedsHowMuchOfWhatIsLeft) {
  EXPECT_NO_THROW(require_memory(1, "nothing needs"));
  try {
    require_memory(int64_t{1} << 60, "the arrays need");
    ADD_FAILURE() << "so much memory";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the arrays need 1.15 EB"), HasSubstr("are left")));
  }
}

}  // namespace
}  // namespace penstock
