#include "penstock/train/data/data_formats.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/load_data.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/util/files/files.h"

namespace penstock::train {
namespace {

// The example of docs/extending.md.

/// Two numbers and a class in each line: "0.5 1.5 1".
DataParts read_pairs(const DataSpec& spec, const std::string& name) {
  std::ifstream file(name);
  std::vector<float> numbers;
  std::vector<int64_t> classes;
  float first = 0;
  float second = 0;
  for (int64_t label = 0; file >> first >> second >> label;) {
    numbers.insert(numbers.end(), {first, second});
    classes.push_back(label);
  }
  const at::Tensor inputs = at::tensor(numbers).view({-1, 2});
  return {.train = std::make_shared<TensorDataset>(name, spec.sample, model::Tensors{inputs},
                                                   at::tensor(classes)),
          .test = {}};
}

const DataFormat kPairs = {{.name = "FILE.pairs",
                            .named = DataNamed::ByItsEnding,
                            .ending = ".pairs",
                            .help = "two numbers and a class in each line"},
                           read_pairs};

TEST(DataFormats, AProgramHasItsOwn) {
  const TestFolder folder;
  const std::string file = (folder / "mine.pairs").string();
  write_test_file(file, "1 2 0\n3 4 1\n5 6 0\n7 8 1\n");
  const DataSplit data =
      load_data({.name = file, .sample = labelled({2}, 2), .test_share = 0.25}, {&kPairs, 1});
  EXPECT_EQ(data.train->size(), 3);
  EXPECT_EQ(data.test->size(), 1);
  EXPECT_EQ(find_data_format(file), nullptr);
}

TEST(DataFormats, AreFoundByNameEndingAndFolder) {
  const TestFolder folder;
  EXPECT_EQ(find_data_format("idx")->name, "idx");
  EXPECT_EQ(find_data_format("somewhere/mine.npz")->name, "FILE.npz");
  EXPECT_EQ(find_data_format(folder.path().string())->name, "FOLDER");
  write_test_file(folder / "manifest.json", "of something else");
  EXPECT_EQ(find_data_format(folder.path().string())->name, "FOLDER");
  write_test_file(folder / "vocabulary.model", "");
  EXPECT_EQ(find_data_format(folder.path().string())->name, "TOKENS");
  EXPECT_EQ(find_data_format("mine.xml"), nullptr);
}

TEST(DataFormats, DocumentationHasTheRows) {
  const std::string page = read_file(PENSTOCK_DOCS "/training.md", 1 << 20);
  for (const DataFormatRow& row : kDataFormats) {
    std::string line = "| `" + std::string(row.name) + "` | " + std::string(row.help) + " |\n";
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace penstock::train
