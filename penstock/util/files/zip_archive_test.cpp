#include "penstock/util/files/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "penstock/util/error.h"
#include "penstock/util/files/test_zip.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class ZipFile : public testing::Test {
 protected:
  ~ZipFile() override { std::filesystem::remove(path_); }

  std::string write(const std::string& content) const {
    std::ofstream(path_, std::ios::binary) << content;
    return path_;
  }
  std::string refusal(const std::string& content, const std::string& member = "") const {
    try {
      ZipArchive archive(write(content), "a writer");
      archive.read(member.empty() ? archive.members().begin()->first : member, 1 << 20);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

 private:
  std::string path_ = testing::TempDir() + "penstock-zip-" + std::to_string(::getpid());
};

TEST_F(ZipFile, MembersMayBeStoredOrDeflated) {
  std::string numbers;
  for (int i = 0; i < 20000; ++i) numbers += std::to_string(i % 97);
  for (const bool deflates : {false, true}) {
    ZipArchive archive(write(make_zip({{"a", numbers}, {"b/c", ""}, {"d", "x"}}, deflates)), "w");
    EXPECT_EQ(archive.members().size(), 3);
    EXPECT_EQ(archive.read("a", 1 << 20), numbers);
    EXPECT_EQ(archive.read("b/c", 0), "");
    EXPECT_EQ(archive.read("d", 1), "x");
    EXPECT_EQ(archive.members().at("a").is_deflated, deflates);
    EXPECT_THROW(archive.read("a", 100), ConfigError);
    EXPECT_THROW(archive.read("e", 100), ConfigError);
    EXPECT_EQ(archive.begin("a", 7), numbers.substr(0, 7));
    EXPECT_EQ(archive.begin("a", int64_t{1} << 40), numbers);
    EXPECT_EQ(archive.begin("b/c", 3), "");
    EXPECT_THROW(archive.begin("e", 3), ConfigError);
  }
}

TEST_F(ZipFile, DamageIsFound) {
  EXPECT_THAT(refusal("PK"), HasSubstr("no zip archive"));
  EXPECT_THAT(refusal(std::string(100, 'x')), HasSubstr("as a writer writes"));
  const std::string good = make_zip({{"abc", std::string(1000, 'x')}}, true);
  EXPECT_EQ(refusal(good), "nothing was refused");
  std::string other = good;
  other[35] ^= 1;  // of the packed bytes
  EXPECT_THAT(refusal(other), HasSubstr("is damaged"));
  // What says that it becomes a thousand times larger than deflate can make it takes no memory.
  other = good;
  const size_t entry = other.find("PK\x01\x02");
  for (size_t i = 0; i < 3; ++i) other[entry + 24 + i] = '\x0f';
  EXPECT_THAT(refusal(other), HasSubstr("is damaged"));
  for (size_t i = 0; i < good.size(); ++i) {
    other = good;
    other[i] = static_cast<char>(other[i] ^ 0x55);
    refusal(other);  // never more than that
    refusal(good.substr(0, i));
  }
}

}  // namespace
}  // namespace penstock
