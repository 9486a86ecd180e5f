#include "penstock/captions/captioned_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "penstock/captions/npy_rows.h"
#include "penstock/text/testing_folder.h"
#include "penstock/util/error.h"

namespace penstock::captions {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using text::Part;
using text::TestFolder;

/// `rows` frames of two numbers: 10, 11; 20, 21; ...
void write_features(const TestFolder& folder, const std::string& name, int rows) {
  std::filesystem::create_directories((folder.path() / name).parent_path());
  NpyWriter writer(folder.path() / name, "<f4", {rows, 2});
  for (int r = 1; r <= rows; ++r) {
    const float numbers[] = {static_cast<float>(10 * r), static_cast<float>(10 * r + 1)};
    writer.add({reinterpret_cast<const char*>(numbers), sizeof numbers});
  }
  writer.finish();
}

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

FolderRequest request_for(const TestFolder& folder, double test_share = 0) {
  return {.folder = folder.path(), .frames = 3, .shares = {.valid = 0, .test = test_share}};
}

TEST(CaptionedFolder, ReadsFeaturesEvenlySpread) {
  const TestFolder folder;
  write_features(folder, "features/a.npy", 5);
  write_features(folder, "b.npy", 1);
  folder.write("captions.txt",
               "# names and captions\na A man rides.\na\tA horse runs\n\nb A cat\ngone A dog\n");
  const CaptionSource source = captioned_folder(request_for(folder));
  EXPECT_EQ(source.kind, FrameKind::Features);
  EXPECT_EQ(source.numbers, 2);
  const auto& train = source.captions[index_of(Part::Train)];
  ASSERT_EQ(train.size(), 2u);
  const size_t a = train[0].size() == 2 ? 0 : 1;
  EXPECT_THAT(train[a], ElementsAre("A man rides.", "A horse runs"));
  EXPECT_THAT(train[1 - a], ElementsAre("A cat"));
  EXPECT_THAT(source.notes, ElementsAre("1 clip with captions have no file and are left out"));
  std::string bytes;
  source.read(Part::Train, a, bytes);
  EXPECT_THAT(floats(bytes), ElementsAre(10, 11, 30, 31, 50, 51));
  bytes.clear();
  source.read(Part::Train, 1 - a, bytes);
  EXPECT_THAT(floats(bytes), ElementsAre(10, 11, 10, 11, 10, 11));
}

TEST(CaptionedFolder, ReadsTheTableOfMsvd) {
  const TestFolder folder;
  write_features(folder, "mv89_33_46.npy", 2);
  folder.write("captions.csv",
               "VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description\r\n"
               "mv89,33,46,588702,unverified,55,English,\"A bird, in a sink\"\r\n"
               "mv89,33,46,362812,unverified,21,Slovene,Papagaj se umiva.\r\n");
  const CaptionSource source = captioned_folder(request_for(folder));
  EXPECT_THAT(source.captions[index_of(Part::Train)],
              ElementsAre(ElementsAre("A bird, in a sink")));
}

TEST(CaptionedFolder, IsDividedByListsOrByTheSeed) {
  const TestFolder folder;
  std::string captions;
  for (int i = 0; i < 10; ++i) {
    write_features(folder, "c" + std::to_string(i) + ".npy", 2);
    captions += "c" + std::to_string(i) + " caption " + std::to_string(i) + "\n";
  }
  folder.write("captions.txt", captions);
  const CaptionSource shares = captioned_folder(request_for(folder, 0.2));
  EXPECT_EQ(shares.captions[index_of(Part::Test)].size(), 2u);
  EXPECT_EQ(shares.captions[index_of(Part::Train)].size(), 8u);
  folder.write("train_list.txt", "c3\nc4\nunknown\n");
  folder.write("test_list.txt", "c4\nc5\n");
  const CaptionSource lists = captioned_folder(request_for(folder, 0.2));
  EXPECT_THAT(lists.captions[index_of(Part::Train)],
              ElementsAre(ElementsAre("caption 3"), ElementsAre("caption 4")));
  EXPECT_THAT(lists.captions[index_of(Part::Test)], ElementsAre(ElementsAre("caption 5")));
  EXPECT_THAT(lists.notes, ElementsAre("train_list.txt has 1 name without a clip (a file and a "
                                       "caption), which count nothing; the first is 'unknown'"));
  folder.write("train_list.txt", "c33\n\nc44\n");
  EXPECT_THAT([&] { return captioned_folder(request_for(folder)); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("train_list.txt has 2 names without a clip (a file and a caption), "
                            "which count nothing; the first is 'c33'")));
}

TEST(CaptionedFolder, RefusesWhatCannotBeRead) {
  const TestFolder folder;
  const auto read = [&] { return captioned_folder(request_for(folder)); };
  EXPECT_THAT(read, ThrowsMessage<ConfigError>(HasSubstr("captions.txt or captions.csv")));
  folder.write("captions.txt", "a\n");
  EXPECT_THAT(read, ThrowsMessage<ParseError>(HasSubstr("expected a clip's name and a caption")));
  folder.write("captions.txt", "a A man\n../secret A file\n");
  EXPECT_THAT(read, ThrowsMessage<ConfigError>(HasSubstr("none of 2 clips")));
  write_features(folder, "a.npy", 2);
  folder.write("b.avi", "no video");
  folder.write("captions.txt", "a A man\nb A cat\n");
  EXPECT_THAT(read, ThrowsMessage<ConfigError>(HasSubstr("features (.npy) alone")));
  folder.write("captions.csv", "name,words\n");
  FolderRequest table = request_for(folder);
  table.captions = folder.path() / "captions.csv";
  EXPECT_THAT([&] { return captioned_folder(table); },
              ThrowsMessage<ParseError>(HasSubstr("expected columns with the clip")));
}

}  // namespace
}  // namespace penstock::captions
