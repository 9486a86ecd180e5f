#include "penstock/train/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/test_idx.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using testing::HasSubstr;

const std::string kBody = "abcdefghijkl";
const std::string kImages = make_idx({2, 2, 3}, kBody);

std::string idx_refusal(const std::string& content, int dimensions = 3) {
  return message_of<ParseError>([&] { parse_idx(content, dimensions, "some.file"); });
}

TEST(Idx, PlainAndGzipFilesHoldTheSame) {
  for (const std::string& content : {kImages, gzip(kImages)}) {
    const IdxData data = parse_idx(content, 3, "x");
    EXPECT_EQ(data.sizes, (std::vector<int64_t>{2, 2, 3}));
    EXPECT_EQ(std::string(data.bytes.begin(), data.bytes.end()), kBody);
  }
}

TEST(Idx, AGzipFileMayHaveSeveralMembers) {
  const IdxData data = parse_idx(gzip(kImages.substr(0, 7)) + gzip(kImages.substr(7)), 3, "x");
  EXPECT_EQ(std::string(data.bytes.begin(), data.bytes.end()), kBody);
}

TEST(Idx, AFileWithoutImagesIsValid) {
  EXPECT_TRUE(parse_idx(make_idx({0, 28, 28}, ""), 3, "x").bytes.empty());
}

TEST(Idx, RefusesAWrongMagicNumberSayingWhichWasExpected) {
  std::string floats = kImages;
  floats[2] = '\x0d';
  EXPECT_THAT(idx_refusal(floats), testing::AllOf(HasSubstr("some.file"), HasSubstr("0x00000803"),
                                                  HasSubstr("0x00000d03")));
  EXPECT_THAT(idx_refusal(kImages, 1),
              HasSubstr("1 dimension (magic number 0x00000801), found 0x00000803"));
  EXPECT_THAT(idx_refusal("hello, world"), HasSubstr("expected an IDX file"));
}

TEST(Idx, RefusesAnEmptyFile) { EXPECT_THAT(idx_refusal(""), HasSubstr("empty")); }

TEST(Idx, RefusesEveryTruncation) {
  const std::string packed = gzip(kImages);
  for (size_t length = 0; length < kImages.size(); ++length) idx_refusal(kImages.substr(0, length));
  for (size_t length = 0; length < packed.size(); ++length) idx_refusal(packed.substr(0, length));
  EXPECT_THAT(idx_refusal(kImages.substr(0, 20)),
              HasSubstr("truncated: expected 12 bytes of data, found 4"));
  EXPECT_THAT(idx_refusal(kImages.substr(0, 10)), HasSubstr("inside its header"));
}

TEST(Idx, RefusesTrailingBytes) {
  EXPECT_THAT(idx_refusal(kImages + "x"), HasSubstr("expected the end of the file after 12 bytes"));
  EXPECT_THAT(idx_refusal(gzip(kImages + "x")),
              HasSubstr("expected the end of the file after 12 bytes"));
  EXPECT_THAT(idx_refusal(gzip(kImages) + "x"), HasSubstr("follow the gzip data"));
}

TEST(Idx, RefusesSizesThatOverflowOrAreTooLarge) {
  EXPECT_THAT(idx_refusal(make_idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "")),
              HasSubstr("at most 4294967296 bytes"));
  EXPECT_THAT(idx_refusal(make_idx({65536, 65536, 2}, "")), HasSubstr("65536 x 65536 x 2"));
  EXPECT_THAT(idx_refusal(make_idx({0xFFFFFFFF, 0xFFFFFFFF, 0}, "")),
              HasSubstr("4294967295 x 4294967295 x 0"));
}

TEST(Idx, AWrongHeaderCostsNoMemory) {
  // A parser that trusts the header would allocate 4 GiB.
  EXPECT_THAT(idx_refusal(make_idx({65536, 65536, 1}, "abc")),
              HasSubstr("expected 4294967296 bytes of data, found 3"));
  idx_refusal(gzip(make_idx({65536, 65536, 1}, "abc")));
}

TEST(Idx, AGzipBombStopsAtTheSizeInItsHeader) {
  const std::string bomb = gzip(make_idx({1, 1, 1}, std::string(size_t{32} << 20, '\0')));
  EXPECT_THAT(idx_refusal(bomb), HasSubstr("after 1 bytes of data, found more"));
}

TEST(Idx, ADamagedGzipFileIsRefusedOrHoldsTheSameData) {
  const std::string packed = gzip(kImages);
  int refused = 0;
  for (size_t i = 0; i < packed.size() * 8; ++i) {
    std::string damaged = packed;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ 1 << i % 8);
    try {
      const IdxData data =
          parse_idx(damaged, 3, "x");  // header fields such as the time stamp may change
      EXPECT_EQ(std::string(data.bytes.begin(), data.bytes.end()), kBody);
    } catch (const ParseError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(packed.size() * 8 / 2));
}

TEST(Idx, ErrorsNameAMissingFileOrAFolder) {
  const TestFolder folder;
  EXPECT_THAT(message_of<ConfigError>([&] { read_idx(folder / "nothing", 3); }),
              HasSubstr("nothing"));
  EXPECT_THAT(message_of<ConfigError>([&] { read_idx(folder.path(), 3); }),
              HasSubstr(folder.path().string()));
  write_test_file(folder / "short", "abc");
  EXPECT_THAT(message_of<ParseError>([&] { read_idx(folder / "short", 3); }),
              HasSubstr((folder / "short").string()));
}

TEST(Idx, NoMoreIsReadThanTheHeaderAnnounces) {
  const TestFolder folder;
  write_test_file(folder / "long", kImages);
  // Longer than what is ever accepted; takes no room on the disk.
  std::filesystem::resize_file(folder / "long", uintmax_t{6} << 30);
  EXPECT_THAT(message_of<ParseError>([&] { read_idx(folder / "long", 3); }),
              HasSubstr("expected the end of the file after 12 bytes"));
  std::filesystem::create_symlink("/dev/zero", folder / "zeros");
  EXPECT_THAT(message_of<ParseError>([&] { read_idx(folder / "zeros", 3); }),
              HasSubstr("found 0x00000000"));
  write_test_file(folder / "packed", gzip(kImages));
  std::filesystem::resize_file(folder / "packed", uintmax_t{6} << 30);
  EXPECT_THAT(message_of<ParseError>([&] { read_idx(folder / "packed", 3); }),
              HasSubstr("follow the gzip data"));
}

TEST(Idx, FilesReadAsTheirContent) {
  const TestFolder folder;
  std::string body(300'000, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * i % 251);
  const std::string image = make_idx({300, 100, 10}, body);
  for (const std::string& content :
       {image, gzip(image), gzip(image.substr(0, 70'000)) + gzip(image.substr(70'000))}) {
    write_test_file(folder / "file", content);
    EXPECT_EQ(read_idx(folder / "file", 3), parse_idx(content, 3, "x"));
  }
}

RC_GTEST_PROP(Idx, EveryShapeReadsBack, ()) {
  const auto sizes =
      *rc::gen::container<std::vector<uint32_t>>(3, rc::gen::inRange<uint32_t>(0, 6));
  const auto body =
      *rc::gen::container<std::string>(sizes[0] * sizes[1] * sizes[2], rc::gen::arbitrary<char>());
  const std::string plain = make_idx(sizes, body);
  const IdxData data = parse_idx(*rc::gen::arbitrary<bool>() ? gzip(plain) : plain, 3, "x");
  RC_ASSERT(data.sizes == std::vector<int64_t>(sizes.begin(), sizes.end()));
  RC_ASSERT(std::string(data.bytes.begin(), data.bytes.end()) == body);
}

RC_GTEST_PROP(Idx, GarbageIsAParseError, (std::string tail, bool packed)) {
  const std::string content =
      packed ? "\x1f\x8b\x08" + tail : std::string("\0\0\x08\x03", 4) + tail;
  try {
    parse_idx(content, 3, "x");
  } catch (const ParseError&) {
  }
}

}  // namespace
}  // namespace penstock::train
