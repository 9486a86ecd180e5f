#include "penstock/frames/sources/image_folder.h"

#include <gmock/gmock.h>

#include "penstock/frames/opencv/testing_opencv.h"
#include "penstock/frames/testing_frames.h"
#include "penstock/util/files/files.h"
#include "penstock/util/process/log.h"

namespace penstock::frames {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A grey image of one value in the simplest format.
std::string pgm(int width, int height, char value) {
  return fmt::format("P5\n{} {}\n255\n", width, height) +
         std::string(static_cast<size_t>(width) * static_cast<size_t>(height), value);
}

ImageFolderOptions options_for(const TestFolder& folder) {
  return {.folder = folder.path(), .opencv_module = kTestModule};
}

/// The first value of each frame.
std::vector<int> values_of(FrameSource& source, int most = 100) {
  std::vector<int> values;
  Frame frame;
  while (static_cast<int>(values.size()) < most && source.next(frame, soon()) == Next::Ready) {
    EXPECT_EQ(frame.size, source.size());
    EXPECT_EQ(static_cast<int64_t>(frame.pixels.size()), frame_bytes(source.size()));
    EXPECT_EQ(frame.number, static_cast<int64_t>(values.size()));
    values.push_back(frame.pixels[0]);
  }
  return values;
}

/// Keeps the warnings of a test.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel, std::string_view text) { text_ += std::string(text) + "\n"; });
  }
  ~Warnings() { set_log_sink(nullptr); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

TEST(ImageFolder, ImagesComeInTheOrderInWhichPeopleCount) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("frame10.pgm", pgm(4, 2, 10));
  folder.write("frame2.pgm", pgm(4, 2, 2));
  folder.write("frame1.PGM", pgm(4, 2, 1));
  folder.write("notes.txt", "not an image");
  folder.write(".hidden.pgm", "broken");
  std::filesystem::create_directory(folder / "folder.png");
  ImageFolder source(options_for(folder));
  EXPECT_EQ(source.size(), (FrameSize{4, 2, kRgb}));
  EXPECT_EQ(source.describe(), fmt::format("3 images of {}, 4x2 RGB", folder.path().string()));
  EXPECT_EQ(values_of(source), (std::vector<int>{1, 2, 10}));
  EXPECT_EQ(source.remarks(), "");
}

TEST(ImageFolder, AFolderPerClassLabelsItsImages) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  for (const char* name : {"class10", "class2", "empty", ".hidden"})
    std::filesystem::create_directory(folder / name);
  for (int k = 1; k <= 3; ++k)
    folder.write(fmt::format("class2/{}.pgm", k), pgm(4, 2, static_cast<char>(20 + k)));
  folder.write("class10/1.pgm", pgm(4, 2, 101));
  folder.write(".hidden/1.pgm", pgm(4, 2, 1));
  folder.write("empty/notes.txt", "");
  ImageFolder source(options_for(folder));
  EXPECT_EQ(source.class_names(), (std::vector<std::string>{"class2", "class10"}));
  EXPECT_TRUE(source.labels_frames());
  EXPECT_THAT(source.describe(), HasSubstr("4 images in 2 classes of"));
  Frame frame;
  std::vector<std::pair<int, int>> found;
  while (source.next(frame, soon()) == Next::Ready)
    found.emplace_back(frame.pixels[0], frame.label.value_or(-1));
  EXPECT_EQ(found, (std::vector<std::pair<int, int>>{{21, 0}, {101, 1}, {22, 0}, {23, 0}}))
      << "one of each class in turn";
  std::filesystem::remove_all(folder / "class10");
  EXPECT_THAT(message_of<ConfigError>([&] { ImageFolder one(options_for(folder)); }),
              HasSubstr("one folder of them, 'class2': expected two or more"));
  folder.write("own.pgm", pgm(4, 2, 9));
  ImageFolder plain(options_for(folder));
  EXPECT_EQ(plain.num_classes(), 0) << "images of the folder itself have no classes";
  EXPECT_FALSE(plain.labels_frames());
}

TEST(ImageFolder, LeavesImagesOutWithoutDecodingThem) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  for (int k = 1; k <= 5; ++k)
    folder.write(fmt::format("{}.pgm", k), k == 2 ? "broken" : pgm(4, 2, static_cast<uint8_t>(k)));
  ImageFolder source(options_for(folder));
  EXPECT_EQ(source.counts(), (SourceCounts{.announced = 5}));
  EXPECT_EQ(source.skip(3), 3);
  Frame frame;
  for (const int value : {4, 5}) {
    ASSERT_EQ(source.next(frame, soon()), Next::Ready);
    EXPECT_EQ(frame.pixels[0], value);
    EXPECT_EQ(frame.number, value - 1);
  }
  EXPECT_EQ(source.skip(1), 0);
  EXPECT_EQ(source.counts().broken, 0);
  ImageFolderOptions options = options_for(folder);
  options.repeats = true;
  ImageFolder repeated(options);
  EXPECT_EQ(repeated.skip(13), 13);
  ASSERT_EQ(repeated.next(frame, soon()), Next::Ready);
  EXPECT_EQ(frame.pixels[0], 4);
  EXPECT_EQ(frame.number, 13);
}

TEST(ImageFolder, ColoursAndFormats) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("image", folder / "1.png", 6, 5, 200, 100, 50);
  write_media("image", folder / "2.jpg", 6, 5, 200, 100, 50);
  write_media("image", folder / "3.bmp", 6, 5, 200, 100, 50);
  ImageFolder source(options_for(folder));
  Frame frame;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(source.next(frame, soon()), Next::Ready);
    EXPECT_NEAR(frame.pixels[0], 200, 3);
    EXPECT_NEAR(frame.pixels[1], 100, 3);
    EXPECT_NEAR(frame.pixels[2], 50, 3);
  }
  ImageFolderOptions grey = options_for(folder);
  grey.channels = kGrey;
  ImageFolder greys(grey);
  for (const int value : values_of(greys)) EXPECT_NEAR(value, 124, 3);
}

TEST(ImageFolder, TheFirstImageGivesTheSizeUnlessItIsGiven) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("1.pgm", pgm(8, 6, 1));
  folder.write("2.pgm", pgm(3, 9, 2));
  ImageFolder source(options_for(folder));
  EXPECT_EQ(source.size(), (FrameSize{8, 6, kRgb}));
  EXPECT_EQ(values_of(source), (std::vector<int>{1, 2}));
  ImageFolderOptions given = options_for(folder);
  given.width = 5;
  given.height = 7;
  ImageFolder resized(given);
  EXPECT_EQ(resized.size(), (FrameSize{5, 7, kRgb}));
  EXPECT_EQ(values_of(resized), (std::vector<int>{1, 2}));
}

TEST(ImageFolder, ABrokenImageIsSkippedAndNamedOnce) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("1.pgm", pgm(2, 2, 1));
  folder.write("2.png", "\x89PNG\r\n\x1a\n broken");
  folder.write("3.jpg", "");
  folder.write("4.pgm", pgm(2, 2, 4));
  const Warnings warnings;
  ImageFolderOptions options = options_for(folder);
  options.repeats = true;
  ImageFolder source(options);
  EXPECT_EQ(values_of(source, 5), (std::vector<int>{1, 4, 1, 4, 1}));
  EXPECT_EQ(source.remarks(),
            "2 of 4 images could not be decoded and were skipped, the first one is '2.png'");
  EXPECT_THAT(warnings.text(), AllOf(HasSubstr("2.png: the image cannot be decoded"),
                                     HasSubstr("3.jpg: the image cannot be decoded and is skipped: "
                                               "it is empty")));
  EXPECT_EQ(std::count(warnings.text().begin(), warnings.text().end(), '\n'), 2);
}

TEST(ImageFolder, ABrokenImageIsFatalIfAsked) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("1.pgm", pgm(2, 2, 1));
  folder.write("2.png", "broken");
  ImageFolderOptions options = options_for(folder);
  options.skips_broken = false;
  ImageFolder source(options);
  Frame frame;
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_THAT(message_of<ParseError>([&] { source.next(frame, soon()); }),
              HasSubstr("2.png: the image cannot be decoded: it is no image"));
}

TEST(ImageFolder, TooManyBrokenImagesInARowAreFatal) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("0.pgm", pgm(2, 2, 1));
  for (int i = 1; i <= 5; ++i) folder.write(fmt::format("{}.png", i), "broken");
  const Warnings warnings;
  ImageFolderOptions options = options_for(folder);
  options.max_broken_in_row = 4;
  ImageFolder source(options);
  Frame frame;
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_THAT(message_of<ParseError>([&] { source.next(frame, soon()); }),
              AllOf(HasSubstr("4.png"), HasSubstr("4 in a row could not")));
}

TEST(ImageFolder, RefusesFoldersWithoutImages) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("notes.txt", "");
  EXPECT_THAT(message_of<ConfigError>([&] { ImageFolder source(options_for(folder)); }),
              AllOf(HasSubstr("holds no images: found 1 other entries"), HasSubstr(".jpg")));
  folder.write("1.png", "broken");
  const Warnings warnings;
  EXPECT_THAT(message_of<ParseError>([&] { ImageFolder source(options_for(folder)); }),
              HasSubstr("none of 1 images can be decoded"));
  EXPECT_THAT(message_of<ConfigError>([&] {
                ImageFolder source({.folder = folder / "nothing", .opencv_module = kTestModule});
              }),
              HasSubstr("nothing': No such file"));
  ImageFolderOptions huge = options_for(folder);
  huge.width = huge.height = 1 << 20;
  EXPECT_THAT(message_of<ConfigError>([&] { ImageFolder source(huge); }),
              HasSubstr("found 1048576x1048576"));
}

TEST(ImageFolder, AnImageThatClaimsAHugeSizeIsRefusedBeforeMemoryIsTaken) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  folder.write("1.pgm", "P5\n100000 100000\n255\nabc");
  folder.write("2.pgm", pgm(2, 2, 2));
  const Warnings warnings;
  ImageFolder source(options_for(folder));
  EXPECT_EQ(values_of(source), (std::vector<int>{2}));
}

TEST(ImageFolder, NothingIsPrintedAboutDamagedImages) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("image", folder / "1.png", 64, 64, 200, 100, 50);
  write_media("image", folder / "2.jpg", 64, 64, 200, 100, 50);
  for (const char* name : {"1.png", "2.jpg"}) {
    const std::string whole = read_file(folder / name);
    for (const size_t bytes : {whole.size() / 4, whole.size() / 2, whole.size() - 20})
      folder.write(fmt::format("{}-{}{}", name, bytes, std::string(name).substr(1)),
                   whole.substr(0, bytes));
    std::string damaged = whole;
    for (size_t i = whole.size() / 2; i < whole.size() / 2 + 8; ++i) damaged[i] = '\x55';
    folder.write(fmt::format("{}-damaged{}", name, std::string(name).substr(1)), damaged);
  }
  const Warnings warnings;
  testing::internal::CaptureStderr();
  ImageFolder source(options_for(folder));
  const size_t frames = values_of(source).size();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GE(frames, 2u);
}

TEST(ImageFolder, WithoutOpencvTheMessageNamesThePackages) {
  if (has_opencv()) GTEST_SKIP() << "this build has OpenCV";
  const TestFolder folder;
  folder.write("1.pgm", pgm(2, 2, 1));
  EXPECT_THAT(message_of<ConfigError>([&] { ImageFolder source(options_for(folder)); }),
              HasSubstr("libopencv-imgcodecs-dev"));
}

TEST(ImageFolder, AJpegThatIsCutOffIsBroken) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("image", folder.path() / "1.jpg", 64, 48, 200, 100, 50);
  write_media("image", folder.path() / "2.jpg", 64, 48, 10, 20, 30);
  const std::string whole = read_file(folder.path() / "2.jpg");
  for (const size_t percent : {20, 60, 99}) {
    folder.write("2.jpg", whole.substr(0, whole.size() * percent / 100));
    Warnings warnings;
    ImageFolder source(options_for(folder));
    EXPECT_EQ(values_of(source).size(), 1u) << percent;
    EXPECT_THAT(warnings.text(), HasSubstr("2.jpg: the image cannot be decoded and is skipped: its "
                                           "JPEG has no end: the file is cut off"));
    EXPECT_EQ(source.counts().broken, 1);
  }
}

TEST(ImageFolder, SixteenBitsThatHoldTwelveAreRefused) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  const auto pgm16 = [](int first, int second) {
    std::string image = "P5\n2 1\n65535\n";
    for (const int value : {first, second})
      image += {static_cast<char>(value >> 8), static_cast<char>(value & 0xFF)};
    return image;
  };
  folder.write("1.pgm", pgm16(257 * 100, 65535));
  folder.write("2.pgm", pgm16(4095, 17));
  Warnings warnings;
  ImageFolder source(options_for(folder));
  Frame frame;
  ASSERT_EQ(source.next(frame, soon()), Next::Ready);
  EXPECT_EQ(frame.pixels, (std::vector<uint8_t>{100, 100, 100, 255, 255, 255}));
  EXPECT_EQ(source.next(frame, soon()), Next::Ended);
  EXPECT_THAT(warnings.text(), HasSubstr("its 16 bits hold values up to 4095, of which 16 shades "
                                         "would be left"));
  EXPECT_THAT(warnings.text(), HasSubstr("multiply them by 16, so that 12 bits fill 16"));
}

TEST(ImageDecoder, TurnsAnImageAsItsCameraWasHeldOnlyIfAsked) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_media("image", folder.path() / "1.jpg", 64, 48, 200, 100, 50);
  std::string content = read_file(folder.path() / "1.jpg");
  // EXIF with one entry: the orientation (0x0112) is 6, a quarter turn to the right.
  const std::string exif(
      "\xFF\xE1\x00\x22"
      "Exif\0\0MM\0\x2A\0\0\0\x08\0\x01"
      "\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0",
      36);
  folder.write("1.jpg", content.insert(2, exif));
  ImageDecoder decoder(kTestModule);
  std::string why;
  ASSERT_TRUE(decoder.decode(folder.path() / "1.jpg", kRgb, /*turns=*/false, why)) << why;
  EXPECT_EQ(decoder.size(), (FrameSize{64, 48, kRgb})) << "as torchvision reads it";
  ASSERT_TRUE(decoder.decode(folder.path() / "1.jpg", kRgb, /*turns=*/true, why)) << why;
  EXPECT_EQ(decoder.size(), (FrameSize{48, 64, kRgb}));
}

}  // namespace
}  // namespace penstock::frames
