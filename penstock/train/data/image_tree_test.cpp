// Folders of images as torchvision's ImageFolder counts them. No image is decoded.
#include "penstock/train/data/image_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

/// Makes empty files; a name that ends with '/' is a folder.
void make(const TestFolder& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const fs::path path = folder / name;
    if (name.ends_with('/')) {
      fs::create_directories(path);
      continue;
    }
    fs::create_directories(path.parent_path());
    write_test_file(path, "");
  }
}

/// "0 a/1.jpg" of each image.
std::vector<std::string> images_of(const ImageTree& tree) {
  std::vector<std::string> images;
  for (const ImageTree::Image& image : tree.images)
    images.push_back(fmt::format("{} {}", image.label, image.path));
  return images;
}

ImageTree tree_of(const std::vector<std::string>& names, ClassOrder order = ClassOrder::Text) {
  const TestFolder folder;
  make(folder, names);
  return read_image_tree(folder.path(), order);
}

std::string refusal_of(const std::vector<std::string>& names) {
  return message_of<ConfigError>([&] { tree_of(names); });
}

TEST(ImageTree, ImagesCountAtAnyDepthBelowTheirClass) {
  EXPECT_THAT(images_of(tree_of({"cat/1.jpg", "cat/more/2.png", "cat/images/deep/3.JPEG",
                                 "dog/images/1.webp", "dog/images/2.tiff"})),
              ElementsAre("0 cat/1.jpg", "0 cat/images/deep/3.JPEG", "0 cat/more/2.png",
                          "1 dog/images/1.webp", "1 dog/images/2.tiff"));
}

TEST(ImageTree, ImagesOfAClassAreOrderedByFolderAndNameAsText) {
  // '-' comes before '/', and capital letters before small ones.
  EXPECT_THAT(images_of(tree_of(
                  {"a/10.jpg", "a/2.jpg", "a/B.jpg", "a/b/1.jpg", "a/b-c/1.jpg", "a/b/0/1.jpg"})),
              ElementsAre("0 a/10.jpg", "0 a/2.jpg", "0 a/B.jpg", "0 a/b/1.jpg", "0 a/b-c/1.jpg",
                          "0 a/b/0/1.jpg"));
}

TEST(ImageTree, ClassesAreOrderedAsTextOrAsNumbers) {
  const std::vector<std::string> names = {"1/a.png", "2/a.png", "10/a.png"};
  EXPECT_THAT(tree_of(names).classes, ElementsAre("1", "10", "2"));
  EXPECT_THAT(tree_of(names, ClassOrder::Numbers).classes, ElementsAre("1", "2", "10"));
  EXPECT_THAT(images_of(tree_of(names, ClassOrder::Numbers)),
              ElementsAre("0 1/a.png", "1 2/a.png", "2 10/a.png"));
}

TEST(ImageTree, WhatIsNoImageOfAClassIsLeftOutAndCounted) {
  const ImageTree tree =
      tree_of({"a/1.jpg", "a/2.gif", "a/3.gif", "a/4.avif", "a/scan", "a/._1.jpg", "a/x/Thumbs.db",
               "b/1.png", ".cache/1.png", "__MACOSX/a/1.jpg", "__MACOSX/b/1.jpg", "labels.csv",
               "cover.png"});
  EXPECT_THAT(tree.classes, ElementsAre("a", "b"));
  EXPECT_THAT(images_of(tree), ElementsAre("0 a/1.jpg", "1 b/1.png"));
  EXPECT_EQ(tree.left_out.text(),
            "1 .avif, 1 .csv, 1 .db, 2 .gif, 1 __MACOSX, 2 hidden, 1 images beside the folders of "
            "classes, 1 without an ending");
}

TEST(ImageTree, ManyKindsAreSummedUp) {
  std::vector<std::string> names = {"a/1.jpg"};
  for (char ending = 'a'; ending < 'm'; ++ending) names.push_back(fmt::format("a/file.{}", ending));
  EXPECT_EQ(tree_of(names).left_out.text(),
            "1 .a, 1 .b, 1 .c, 1 .d, 1 .e, 1 .f, 1 .g, 1 .h, 4 others");
}

TEST(ImageTree, AClassWithoutImagesIsRefused) {
  EXPECT_THAT(refusal_of({"cat/1.jpg", "notes/a.txt", "notes/b.txt", "raw/"}),
              AllOf(HasSubstr("'notes', 'raw' hold no images"), HasSubstr("found 2 .txt"),
                    HasSubstr("Move what is no class elsewhere")));
  EXPECT_THAT(refusal_of({"1.jpg", "2.jpg"}), HasSubstr("expected one per class"));
}

TEST(ImageTree, LinksAreFollowedAndThoseThatLeadBackAreRefused) {
  const TestFolder folder;
  make(folder, {"cat/1.jpg", "store/2.jpg", "store/3.jpg"});
  fs::create_directory_symlink(folder / "store", folder / "cat" / "more");
  EXPECT_THAT(images_of(read_image_tree(folder.path(), ClassOrder::Text)),
              ElementsAre("0 cat/1.jpg", "0 cat/more/2.jpg", "0 cat/more/3.jpg", "1 store/2.jpg",
                          "1 store/3.jpg"));
  fs::create_directory_symlink(folder / "cat", folder / "cat" / "again");
  EXPECT_THAT(message_of<ConfigError>([&] { read_image_tree(folder.path(), ClassOrder::Text); }),
              HasSubstr("does a link lead back?"));
}

TEST(ImageTree, TestImagesAreOfTheTrainingClasses) {
  const TestFolder folder;
  make(folder, {"b/1.jpg", "c/1.jpg", "empty/", ".git/x"});
  const ImageTree tree = read_image_tree(folder.path(), {"c", "a", "b"});
  EXPECT_THAT(images_of(tree), ElementsAre("2 b/1.jpg", "0 c/1.jpg"));
  EXPECT_THAT(message_of<ConfigError>([&] {
                read_image_tree(folder.path(), {"a", "b"});
              }),
              HasSubstr("a class 'c' that the training images have not"));
}

/// Where the parts of a folder with these files lie: "train -, test val".
std::string parts_with(const std::vector<std::string>& names) {
  const TestFolder folder;
  make(folder, names);
  const FolderParts parts = folder_parts(folder.path());
  const auto name = [&](const fs::path& part) {
    if (part.empty()) return std::string("-");
    return part == folder.path() ? std::string(".") : part.filename().string();
  };
  const std::string left = parts.left_out.text();
  return fmt::format("{} {}{}{}", name(parts.train), name(parts.test), left.empty() ? "" : "; ",
                     left);
}

TEST(FolderParts, AreKnownByTheirUsualNames) {
  EXPECT_EQ(parts_with({"train/a/1.jpg", "test/a/1.jpg"}), "train test");
  EXPECT_EQ(parts_with({"train/a/1.jpg", "validation/a/1.jpg"}), "train validation");
  EXPECT_EQ(parts_with({"train/a/1.jpg", "valid/a/1.jpg"}), "train valid");
  EXPECT_EQ(parts_with({"train/a/1.jpg", "Val/a/1.jpg"}), "train Val");
  EXPECT_EQ(parts_with({"train/a/1.jpg", "dev/a/1.jpg"}), "train dev");
  EXPECT_EQ(parts_with({"Training/a/1.jpg", "Testing/a/1.jpg"}), "Training Testing");
  EXPECT_EQ(parts_with({"train/a/1.jpg"}), "train -");
}

TEST(FolderParts, TheTestSetIsOneAndOthersAreNamed) {
  EXPECT_EQ(parts_with({"train/a/1.jpg", "val/a/1.jpg", "test/a/1.jpg"}),
            "train test; 1 val/ (another part is the test set)");
  EXPECT_EQ(parts_with({"train/a/1.jpg", "val/a/1.jpg", "test/1.jpg", "README.md"}),
            "train val; 1 .md, 1 test/ (it has no folders of classes)");
}

TEST(FolderParts, AClassMayBeCalledTrain) {
  EXPECT_EQ(parts_with({"bus/1.jpg", "car/1.jpg", "train/1.jpg"}), ". -");
  EXPECT_EQ(parts_with({"bus/1.jpg", "car/1.jpg", "train/de/1.jpg", "train/fr/1.jpg"}), ". -");
  EXPECT_EQ(parts_with({"bus/1.jpg", "test/1.jpg"}), ". -");
  EXPECT_EQ(parts_with({"bus/1.jpg", "car/1.jpg"}), ". -");
  EXPECT_EQ(parts_with({}), ". -");
  EXPECT_EQ(parts_with({"train/bus/1.jpg", "train/train/1.jpg", "val/train/1.jpg", "notes/a.txt"}),
            "train val; 1 folders without images");
}

TEST(FolderParts, WhatMayBeBothIsRefused) {
  const auto refusal = [](const std::vector<std::string>& names) {
    return message_of<ConfigError>([&] { parts_with(names); });
  };
  EXPECT_THAT(refusal({"train/a/1.jpg", "val/a/1.jpg", "extra/1.jpg"}),
              AllOf(HasSubstr("the folders extra, train, val"), HasSubstr("classes or parts")));
  EXPECT_THAT(refusal({"test/a/1.jpg", "val/a/1.jpg"}), HasSubstr("expected one called train"));
  EXPECT_THAT(refusal({"train/a/1.jpg", "training/a/1.jpg"}), HasSubstr("train, training"));
}

}  // namespace
}  // namespace penstock::train
