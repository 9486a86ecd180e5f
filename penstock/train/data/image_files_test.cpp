// Images as samples. Pictures are written as PPM, which needs no encoder.
#include "penstock/train/data/image_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "penstock/frames/opencv/opencv_interface.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

/// This program is <build>/lib/train/train_test.
const fs::path kModule =
    fs::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path() /
    frames::kOpencvModule;

#define SKIP_WITHOUT_OPENCV() \
  if (!fs::exists(kModule)) GTEST_SKIP() << "this build is without OpenCV"

/// The left third is `left`, the rest `right`, in all channels.
void write_picture(const fs::path& path, int width, int height, uint8_t left, uint8_t right) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << "P6\n" << width << ' ' << height << "\n255\n";
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto value = static_cast<char>(x < width / 3 ? left : right);
      out << value << value << value;
    }
  }
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

float normal(int byte, double mean, double deviation) {
  return static_cast<float>((byte / 255.0 - mean) / deviation);
}

ImageFiles images_in(const fs::path& folder, const model::Shape& shape = {3, 4, 4}) {
  return ImageFiles(folder, read_image_tree(folder, ClassOrder::Numbers), labelled(shape, 10),
                    /*turns=*/false, kModule);
}

TEST(ImageFiles, ClassesAreFoldersAndPixelsAreNormalised) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_picture(folder.path() / "class10" / "a.ppm", 4, 4, 255, 255);
  write_picture(folder.path() / "class9" / "im2.ppm", 4, 4, 0, 0);
  write_picture(folder.path() / "class9" / "im10.ppm", 8, 8, 51, 51);
  write_file(folder.path() / "class9" / "notes.txt", "no image");
  write_file(folder.path() / ".cache" / "x.ppm", "hidden");
  const ImageFiles images = images_in(folder.path());
  ASSERT_EQ(images.size(), 3);
  EXPECT_EQ(images.sample().targets.classes, 2);
  const at::Tensor targets = images.targets({0, 1, 2});
  EXPECT_EQ(targets[1].item<int64_t>(), 0);
  EXPECT_EQ(targets[2].item<int64_t>(), 1);
  const at::Tensor pixels = images.inputs({0, 1, 2}).at(0);
  EXPECT_EQ(pixels.sizes(), (std::vector<int64_t>{3, 3, 4, 4}));
  EXPECT_FLOAT_EQ(pixels[0][0][3][3].item<float>(), normal(51, 0.485, 0.229)) << "im10 is first";
  EXPECT_FLOAT_EQ(pixels[1][1][0][0].item<float>(), normal(0, 0.456, 0.224));
  EXPECT_FLOAT_EQ(pixels[2][2][0][0].item<float>(), normal(255, 0.406, 0.225));
  EXPECT_TRUE(images.inputs({2, 0}).at(0)[1].equal(pixels[0])) << "from memory";
  const at::Tensor grey = images_in(folder.path(), {1, 2, 2}).inputs({1}).at(0);
  EXPECT_FLOAT_EQ(grey[0][0][0][0].item<float>(), normal(0, 0.449, 0.226));
}

TEST(ImageFiles, TheMiddleIsTakenWithoutDistortion) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  // 24 x 8 becomes 12 x 4, of which columns 4 to 7 are taken: the left third is gone but for what
  // mixes into its neighbour.
  write_picture(folder.path() / "a" / "wide.ppm", 24, 8, 0, 200);
  write_picture(folder.path() / "a" / "tall.ppm", 6, 12, 30, 30);
  const ImageFiles images = images_in(folder.path());
  const at::Tensor pixels = images.inputs({0, 1}).at(0);
  EXPECT_TRUE(pixels[0].isfinite().all().item<bool>());
  EXPECT_FLOAT_EQ(pixels[1][0].narrow(1, 1, 3).min().item<float>(), normal(200, 0.485, 0.229))
      << "wide; the first column is mixed from both";
  EXPECT_FLOAT_EQ(pixels[0][0].max().item<float>(), normal(30, 0.485, 0.229)) << "tall";
}

TEST(ImageFiles, ShrinkingMixesAllPixelsAsPillowDoes) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  // 7 x 5 grey pixels; Pillow 12.0.0: convert("RGB").resize((4, 3), BILINEAR), then the middle 3 x
  // 3 of them (torchvision's Resize(3) and CenterCrop(3)).
  const std::string bytes = "0123456789abcdefghijklmnopqrstuvwxy";
  fs::create_directories(folder.path() / "a");
  std::ofstream(folder.path() / "a" / "1.pgm", std::ios::binary) << "P5\n7 5\n255\n" << bytes;
  const at::Tensor pixels = images_in(folder.path(), {3, 3, 3}).inputs({0}).at(0);
  const std::vector<int> expected = {52, 58, 72, 93, 97, 105, 113, 114, 116};
  for (int i = 0; i < 9; ++i) {
    EXPECT_FLOAT_EQ(pixels[0][0][i / 3][i % 3].item<float>(),
                    normal(expected[static_cast<size_t>(i)], 0.485, 0.229))
        << i;
  }
}

TEST(ImageFiles, BadImagesAreNamed) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  write_picture(folder.path() / "a" / "1.ppm", 4, 4, 1, 1);
  write_file(folder.path() / "a" / "2.png", "no picture at all");
  write_file(folder.path() / "a" / "3.jpg", "");
  write_picture(folder.path() / "b" / "1.ppm", 4000, 2, 1, 1);
  const ImageFiles images = images_in(folder.path());
  EXPECT_NO_THROW(images.inputs({0}));
  EXPECT_THAT(message_of<Error>([&] {
                images.inputs({0, 1});
              }),
              AllOf(HasSubstr("a/2.png: "), HasSubstr("cannot be decoded: it is no image"),
                    HasSubstr("bad samples can be skipped")));
  const auto bad = images.bad_images();
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_EQ(bad[0].index, 1);
  EXPECT_THAT(bad[1].reason, HasSubstr("a/3.jpg: it is empty"));
  EXPECT_THAT(bad[2].reason, HasSubstr("its sides, 4000 x 2, are too unlike"));
}

TEST(ImageFiles, WrongFoldersAndModelsAreRefused) {
  SKIP_WITHOUT_OPENCV();
  const TestFolder folder;
  EXPECT_THAT(message_of<Error>([&] { images_in(folder.path()); }),
              HasSubstr("expected one per class"));
  EXPECT_THAT(message_of<Error>([&] { images_in(folder.path() / "none"); }),
              HasSubstr("cannot read folder"));
  write_picture(folder.path() / "a" / "1.ppm", 4, 4, 1, 1);
  EXPECT_THAT(message_of<Error>([&] { images_in(folder.path(), {16}); }),
              AllOf(HasSubstr("channels (1 or 3) x height x width"), HasSubstr("float32, 16")));
  EXPECT_THAT(message_of<Error>([&] { images_in(folder.path(), {2, 4, 4}); }), HasSubstr("2x4x4"));
}

}  // namespace
}  // namespace penstock::train
