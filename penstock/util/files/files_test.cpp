#include "penstock/util/files/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "penstock/util/error.h"
#include "tests/support/mutate.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::message_of;

/// Each test works in a fresh folder.
class Files : public ::testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "penstock_files_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  std::vector<fs::path> entries() const {
    return {fs::directory_iterator(folder_), fs::directory_iterator()};
  }

  fs::path folder_;
};

TEST_F(Files, ReadsBackWhatWasWritten) {
  const std::string content("a\0b\xff\n", 5);
  write_file_atomic(folder_ / "x", content);
  EXPECT_EQ(read_file(folder_ / "x"), content);
  write_file_atomic(folder_ / "x", "");
  EXPECT_EQ(read_file(folder_ / "x"), "");
}

TEST_F(Files, WritingLeavesNoTemporaryFile) {
  write_file_atomic(folder_ / "x", "1");
  write_file_atomic(folder_ / "x", "2");
  EXPECT_EQ(entries(), std::vector<fs::path>{folder_ / "x"});
}

TEST_F(Files, ReadingRefusesAMissingFileADirectoryAndALargeOne) {
  EXPECT_THAT(message_of<ConfigError>([&] { read_file(folder_ / "gone"); }),
              AllOf(HasSubstr("gone"), HasSubstr("No such file")));
  EXPECT_THAT(message_of<ConfigError>([&] { read_file(folder_); }), HasSubstr("directory"));
  write_file_atomic(folder_ / "x", "12345");
  EXPECT_EQ(read_file(folder_ / "x", 5), "12345");
  EXPECT_THAT(message_of<ConfigError>([&] { read_file(folder_ / "x", 4); }),
              HasSubstr("larger than the 4 bytes"));
}

TEST_F(Files, ReadingAnEndlessDeviceStopsAtOnce) {
  EXPECT_THAT(message_of<ConfigError>([] { read_file("/dev/zero"); }), HasSubstr("no text"));
}

TEST_F(Files, WritingRefusesADirectoryAndAMissingFolder) {
  EXPECT_THAT(message_of<ConfigError>([&] { write_file_atomic(folder_, "x"); }),
              HasSubstr("directory"));
  EXPECT_THAT(message_of<ConfigError>([&] { write_file_atomic(folder_ / "no" / "x", "x"); }),
              HasSubstr("No such file"));
}

TEST_F(Files, WritingToADeviceDoesNotReplaceIt) {
  write_file_atomic("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Files, WritingThroughASymbolicLinkReplacesItsTarget) {
  write_file_atomic(folder_ / "target", "old");
  fs::create_symlink("target", folder_ / "link");
  write_file_atomic(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "target"), "new");
}

TEST_F(Files, WritingKeepsThePermissionsOfTheFileItReplaces) {
  write_file_atomic(folder_ / "x", "old");
  ASSERT_EQ(::chmod((folder_ / "x").c_str(), 0640), 0);
  write_file_atomic(folder_ / "x", "new");
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
}

TEST_F(Files, AReaderSeesOneWholeContentWhileOthersWrite) {
  const std::string a(100'000, 'a');
  const std::string b(100'000, 'b');
  write_file_atomic(folder_ / "x", a);
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) write_file_atomic(folder_ / "x", i % 2 == 0 ? b : a);
  });
  for (int i = 0; i < 50; ++i) {
    const std::string content = read_file(folder_ / "x");
    EXPECT_TRUE(content == a || content == b);
  }
  writer.join();
}

TEST(Crc32, EqualsThePublishedCheckValue) {
  EXPECT_EQ(crc32_of("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32_of(""), 0U);
  EXPECT_NE(crc32_of("123456788"), crc32_of("123456789"));
}

}  // namespace
}  // namespace penstock
