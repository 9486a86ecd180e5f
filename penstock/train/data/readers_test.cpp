// Folders of images and files of arrays, against what torchvision and NumPy themselves read of
// them: tests/data/readers/ has that, and the programs that wrote it.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/image_tree.h"
#include "penstock/train/data/npy.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"

namespace penstock::train {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

Json read_cases(const std::string& name) {
  const std::string path = std::string(PENSTOCK_READERS) + "/" + name;
  return parse_json(read_file(path, INT64_MAX), path);
}

std::vector<std::string> texts_of(const JsonReader& list) {
  std::vector<std::string> texts;
  for (const JsonReader& one : list.elements()) texts.push_back(one.text());
  return texts;
}

void build_layout(const fs::path& folder, const JsonReader& layout) {
  for (const std::string& name : texts_of(layout.at("files"))) {
    const fs::path path = folder / name;
    fs::create_directories(name.ends_with('/') ? path : path.parent_path());
    if (!name.ends_with('/')) write_test_file(path, "");
  }
  for (const auto& [place, target] : layout.at("links").raw().items())
    fs::create_symlink(target.get<std::string>(), folder / place);
}

/// "0 a/1.jpg" of each image, class by class.
std::vector<std::string> counted_images(const ImageTree& tree) {
  std::vector<std::string> images;
  for (const ImageTree::Image& image : tree.images)
    images.push_back(fmt::format("{} {}", image.label, image.path));
  return images;
}

void expect_layout(const JsonReader& layout) {
  const TestFolder folder;
  build_layout(folder.path(), layout);
  if (const auto refused = layout.find("refused")) {
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { read_image_tree(folder_parts(folder.path()).train, ClassOrder::Text); }),
                HasSubstr(refused->text()));
    return;
  }
  const FolderParts parts = folder_parts(folder.path());
  const auto train = layout.find("train");
  EXPECT_EQ(parts.train, train ? folder.path() / train->text() : folder.path());
  const ImageTree tree = read_image_tree(parts.train, ClassOrder::Text);
  EXPECT_EQ(tree.classes, texts_of(layout.at("classes")));
  EXPECT_EQ(counted_images(tree), texts_of(layout.at("images")));
  EXPECT_EQ(tree.left_out.text(), layout.at("left_out").text());
  if (!layout.has("test")) {
    EXPECT_EQ(parts.test, "");
    return;
  }
  EXPECT_EQ(parts.test, folder.path() / layout.at("test").text());
  EXPECT_EQ(counted_images(read_image_tree(parts.test, tree.classes)),
            texts_of(layout.at("test_images")));
}

TEST(Readers, FoldersAreCountedAsTorchvisionDoes) {
  const Json document = read_cases("layouts.json");
  const JsonReader root(document, "layouts.json");
  for (const JsonReader& layout : root.elements()) {
    SCOPED_TRACE(layout.at("name").text());
    expect_layout(layout);
  }
  EXPECT_GE(root.elements().size(), 40u);
}

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

bool is_same(double one, double other) {
  return (std::isnan(one) && std::isnan(other)) ||
         std::bit_cast<uint64_t>(one) == std::bit_cast<uint64_t>(other);
}

void expect_numbers(const StoredArray& array, const JsonReader& expected) {
  model::Shape shape;
  for (const JsonReader& size : expected.at("shape").elements()) shape.push_back(size.integer());
  EXPECT_EQ(array.sizes(), shape);
  const at::Tensor all = shape.empty() ? *array.plain() : array.block(0, array.size());
  const bool is_real = expected.has("reals");
  const at::Tensor flat = all.contiguous().reshape({-1}).to(is_real ? at::kDouble : at::kLong);
  const auto values = expected.at(is_real ? "reals" : "integers").elements();
  ASSERT_EQ(flat.numel(), std::ssize(values));
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const JsonReader& value = values[static_cast<size_t>(i)];
    if (is_real)
      EXPECT_TRUE(is_same(flat[i].item<double>(), std::strtod(value.text().c_str(), nullptr))) << i;
    else
      EXPECT_EQ(flat[i].item<int64_t>(), value.integer()) << i;
  }
}

void expect_arrays(const fs::path& path, const JsonReader& expected) {
  const Json& arrays = expected.raw();
  if (arrays.size() == 1 && arrays.contains(""))
    return expect_numbers(read_npy(path), expected.at(""));
  Npz archive(path);
  EXPECT_EQ(archive.arrays().size(), arrays.size());
  for (const auto& [name, unused] : arrays.items()) {
    SCOPED_TRACE(name);
    if (const auto refused = expected.at(name).find("refused")) {
      const std::string key = name;
      EXPECT_THAT(message_of<ConfigError>([&] { archive.read(key); }), HasSubstr(refused->text()));
    } else {
      expect_numbers(archive.read(name), expected.at(name));
    }
  }
}

TEST(Readers, ArraysHaveTheNumbersThatNumpyReads) {
  const TestFolder folder;
  const Json document = read_cases("arrays.json");
  const JsonReader root(document, "arrays.json");
  for (const JsonReader& file : root.elements()) {
    SCOPED_TRACE(file.at("name").text());
    const fs::path path = folder / "x.npy";
    write_test_file(path, bytes_of_hex(file.at("file").text()));
    if (const auto refused = file.find("refused"))
      EXPECT_THAT(message_of<ParseError>([&] { read_npy(path); }), HasSubstr(refused->text()));
    else
      expect_arrays(path, file.at("arrays"));
  }
  EXPECT_GE(root.elements().size(), 40u);
}

}  // namespace
}  // namespace penstock::train
