// Tables of images and labels. No image is decoded.
#include "penstock/train/data/image_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ImageTableTest : public testing::Test {
 protected:
  /// A table above these images, which are empty.
  std::filesystem::path table(const std::string& text,
                              const std::vector<std::string>& images) const {
    for (const std::string& image : images) {
      std::filesystem::create_directories((folder_ / image).parent_path());
      write_test_file(folder_ / image, "");
    }
    write_test_file(folder_ / "labels.csv", text);
    return folder_ / "labels.csv";
  }
  static std::vector<std::string> images_of(const ImageTree& tree) {
    std::vector<std::string> images;
    for (const ImageTree::Image& image : tree.images)
      images.push_back(fmt::format("{} {}", image.label, image.path));
    return images;
  }
  std::string refusal(const std::string& text, const std::vector<std::string>& images) const {
    return message_of<Error>([&] { read_image_table(table(text, images), ClassOrder::Text); });
  }

  TestFolder folder_;
};

TEST_F(ImageTableTest, ARowHasAnImageAndItsClass) {
  const ImageTable read = read_image_table(
      table("filename,label\n2.jpg,dog\n1.jpg,cat\n3.jpg,dog\n", {"1.jpg", "2.jpg", "3.jpg"}),
      ClassOrder::Text);
  EXPECT_THAT(read.train.classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(images_of(read.train), ElementsAre("1 2.jpg", "0 1.jpg", "1 3.jpg"));
  EXPECT_THAT(read.test.images, IsEmpty());
  EXPECT_EQ(read.train.left_out.text(), "");
}

TEST_F(ImageTableTest, ImagesLieAnywhereBelowAndEndingsMayLack) {
  const ImageTable read = read_image_table(
      table("id;breed\r\na1;pug\r\nmore/b2.png;boxer\r\n\"c3.png\";\"pug\"\r\n",
            {"train/a1.jpg", "train/more/b2.png", "more/b2.png", "x/c3.png", "x/d4.png"}),
      ClassOrder::Text);
  EXPECT_THAT(images_of(read.train), ElementsAre("1 train/a1.jpg", "0 more/b2.png", "1 x/c3.png"));
  EXPECT_EQ(read.train.left_out.text(), "2 images without a row");
}

TEST_F(ImageTableTest, LabelsThatAreNumbersAreTheClasses) {
  const ImageTable read =
      read_image_table(table("image,target\na,10\nb,2\n", {"a.jpg", "b.jpg"}), ClassOrder::Text);
  EXPECT_THAT(images_of(read.train), ElementsAre("10 a.jpg", "2 b.jpg"));
  EXPECT_EQ(read.train.classes.size(), 11u);
}

TEST_F(ImageTableTest, AColumnMayNameParts) {
  const ImageTable read = read_image_table(
      table("path,class,split\na.jpg,x,train\nb.jpg,y,Val\nc.jpg,x,test\nd.jpg,y,train\n"
            "e.jpg,x,unused\n",
            {"a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"}),
      ClassOrder::Text);
  EXPECT_THAT(images_of(read.train), ElementsAre("0 a.jpg", "1 d.jpg"));
  EXPECT_THAT(images_of(read.test), ElementsAre("0 c.jpg"));
  EXPECT_EQ(read.test_from, "test");
  EXPECT_EQ(read.train.left_out.text(), "1 of 'unused', 1 of the part Val");
}

TEST_F(ImageTableTest, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(refusal("filename,label\n1.jpg,a\n2.jpg,a\n", {"1.jpg"}),
              HasSubstr("labels.csv: 1 of 2 rows name no image, or several, below its folder: "
                        "'2.jpg'"));
  EXPECT_THAT(refusal("filename,label\n1,a\n", {"x/1.jpg", "y/1.png"}), HasSubstr("'1'"));
  EXPECT_THAT(refusal("x,y,z\n1,2,3\n", {}),
              AllOf(HasSubstr("labels.csv:1: "), HasSubstr("found x, y, z")));
  EXPECT_THAT(refusal("filename,label\n1.jpg\n", {}),
              HasSubstr("labels.csv:2: expected 2 columns, found 1"));
  EXPECT_THAT(refusal("filename,label\n", {}), HasSubstr("the table has no images"));
  EXPECT_THAT(message_of<Error>([&] {
                read_image_table(table("filename,label\n1.jpg,cow\n", {"1.jpg"}), ClassOrder::Text,
                                 {"cat", "dog"});
              }),
              HasSubstr("1 rows have a class that the training images have not: 'cow'"));
}

}  // namespace
}  // namespace penstock::train
