#include "penstock/train/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

TEST(EventFile, ChecksumsAreThoseOfCastagnoli) {
  EXPECT_EQ(crc32c_of(""), 0U);
  EXPECT_EQ(crc32c_of("123456789"), 0xe3069283U);  // RFC 3720, and every table of CRCs
  EXPECT_EQ(crc32c_of(std::string(32, '\0')), 0x8a9136aaU);
}

std::vector<std::string> records_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> records;
  for (size_t at = 0; at + 12 <= all.size();) {
    uint64_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof(length));
    records.push_back(all.substr(at + 12, length));
    at += 16 + length;
  }
  return records;
}

TEST(EventFile, AnEventIsInTheFileWhenItIsAdded) {
  const TestFolder folder;
  EventFile events(folder.path() / "a/b", 7);
  events.add(300, {{"train/loss", 0.5}});
  const std::vector<std::string> records = records_of(events.path());
  ASSERT_EQ(records.size(), 3U);
  EXPECT_THAT(records[0], testing::HasSubstr("brain.Event:2"));
  // step 7, session_log { status: START }
  EXPECT_EQ(records[1].substr(9), std::string("\x10\x07\x3a\x02\x08\x01"));
  // step 300, summary { value { tag, simple_value: 0.5 } }
  EXPECT_EQ(records[2].substr(9), std::string("\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0a") +
                                      "train/loss" + std::string("\x15\x00\x00\x00\x3f", 5));
}

TEST(EventFile, AFolderThatCannotBeWrittenIsRefused) {
  EXPECT_THROW(EventFile("/proc/logs", 0), ConfigError);
}

}  // namespace
}  // namespace penstock::train
