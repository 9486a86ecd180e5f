#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "penstock/exported/program.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::exported {
namespace {

using testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(PENSTOCK_TEST_DATA) + "/" + name;
}

/// A file with these bytes, removed at the end.
class File {
 public:
  explicit File(const std::string& bytes)
      : path_(fmt::format("{}/penstock-exported-{}.pt2", testing::TempDir(), ::getpid())) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// What reading these bytes says; empty where they are a program.
std::string message_for(const std::string& bytes) {
  const File file(bytes);
  try {
    read_program(file.path());
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const ParseError& error) {
    return error.what();
  }
  return "";
}

/// With a member's bytes changed, of the same length, and its check sums mended.
std::string with_member(std::string archive, const std::string& old_text, const std::string& text) {
  EXPECT_EQ(old_text.size(), text.size());
  const size_t at = archive.find(old_text);
  EXPECT_NE(at, std::string::npos);
  // The member around it: its local header is the last one before.
  const size_t header = archive.rfind("PK\x03\x04", at);
  const auto number = [&](size_t place, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(archive[place + i]);
    return value;
  };
  const size_t data = header + 30 + number(header + 26, 2) + number(header + 28, 2);
  const size_t length = number(header + 22, 4);
  const std::string name = archive.substr(header + 30, number(header + 26, 2));
  archive.replace(at, text.size(), text);
  const uint32_t crc = crc32_of(std::string_view(archive).substr(data, length));
  const size_t entry = archive.rfind(name) - 46;
  for (size_t i = 0; i < 4; ++i) archive[entry + 16 + i] = static_cast<char>(crc >> (8 * i) & 0xff);
  return archive;
}

TEST(ReadProgram, HasNodesRolesAndWeights) {
  const Program program = read_program(fixture("cnn.pt2"));
  EXPECT_EQ(program.torch_version.substr(0, 4), "2.13");
  EXPECT_TRUE(program.schema.starts_with("8."));
  EXPECT_EQ(program.inputs.size(), program.graph.inputs.size());
  const auto is_user = [](const InputRole& role) { return role.kind == InputRole::Kind::User; };
  EXPECT_EQ(std::count_if(program.inputs.begin(), program.inputs.end(), is_user), 1);
  const Node& conv = program.graph.nodes.front();
  EXPECT_EQ(conv.target, "torch.ops.aten.conv2d.default");
  EXPECT_EQ(conv.modules.back().path, "conv1");
  EXPECT_EQ(conv.inputs[1].name, "weight");
  EXPECT_EQ(std::get<TensorArgument>(conv.inputs[1].value).name, "p_conv1_weight");
  EXPECT_EQ(std::get<std::vector<int64_t>>(conv.inputs[3].value), (std::vector<int64_t>{2, 2}));
  EXPECT_THAT(conv.stack_trace, HasSubstr("make_fixtures.py"));
  const StoredTensor& weight = program.tensors.at("fc.weight");
  EXPECT_EQ(weight.num_bytes, 10 * 196 * 4);
  EXPECT_TRUE(weight.is_parameter);
  EXPECT_EQ(program.tensors.at("norm.num_batches_tracked").meta.type, ScalarType::Long);
  const SymbolicInt batch = program.graph.tensors.at("x").sizes.front();
  EXPECT_FALSE(batch.is_number());
  EXPECT_EQ(batch.value, 4);
}

TEST(ReadProgram, TiedWeightsHaveTheSameBytes) {
  const Program program = read_program(fixture("transformer.pt2"));
  EXPECT_EQ(program.tensors.at("up.weight").file_offset,
            program.tensors.at("down.weight").file_offset);
}

TEST(ReadProgram, OtherFilesAreNamedAsWhatTheyAre) {
  EXPECT_THAT(message_for(""), HasSubstr("is empty"));
  EXPECT_THAT(message_for("not a zip archive at all, only text"), HasSubstr("no zip archive"));
  EXPECT_THAT(message_for(std::string("PK\5\6", 4) + std::string(18, '\0')),
              HasSubstr("empty archive"));
  EXPECT_THROW(read_program(testing::TempDir()), ConfigError);
  EXPECT_THROW(read_program("/nowhere/model.pt2"), ConfigError);
}

TEST(ReadProgram, AnotherSchemaIsRefused) {
  const std::string archive = read_file(fixture("cnn.pt2"));
  EXPECT_EQ(message_for(archive), "");
  EXPECT_THAT(message_for(with_member(archive, "\"major\": 8", "\"major\": 9")),
              HasSubstr("expected 8"));
  EXPECT_THAT(message_for(with_member(archive, "\"as_bool\"", "\"as_cool\"")),
              HasSubstr("'as_cool'"));
  EXPECT_THAT(message_for(with_member(archive, "\"use_pickle\": false", "\"use_pickle\": true ")),
              HasSubstr("pickled Python object"));
}

TEST(ReadProgram, ABranchThatDependsOnTheSizeOfTheBatchIsRefused) {
  const std::string archive = read_file(fixture("cnn.pt2"));
  const std::string before = R"("torch_version": "2.13.0+cpu", "guards_code": [])";
  const auto with_guard = [&](std::string text) {
    text.resize(before.size(), ' ');
    return message_for(with_member(archive, before, text));
  };
  EXPECT_EQ(with_guard(R"("guards_code": ["x.size()[0] > 3"])"), "");
  EXPECT_EQ(with_guard(R"("guards_code": ["x.size()[0] % y.size()[0]"])"), "");
  EXPECT_THAT(with_guard(R"("guards_code": ["x.size()[0] % 2 == 0"])"),
              HasSubstr("holds only for batches with x.size()[0] % 2 == 0"));
}

TEST(ReadProgram, ADamagedTextIsNoticed) {
  std::string archive = read_file(fixture("cnn.pt2"));
  archive[archive.find("\"as_bool\"") + 4] ^= 1;
  EXPECT_THAT(message_for(archive), HasSubstr("check sum"));
}

/// Any damage ends in a message or in a program (a bit of a weight, of a name's padding...).
TEST(ReadProgram, DamagedFilesNeverCrash) {
  const std::string archive = read_file(fixture("cnn.pt2"));
  Rng rng(7);
  for (int k = 0; k < 400; ++k) {
    std::string damaged = archive;
    if (k % 4 == 0) {
      damaged.resize(rng.below(damaged.size()));
    } else {
      // Mostly in the directory, at the end.
      const size_t span = k % 2 == 0 ? damaged.size() : 2000;
      const size_t at = damaged.size() - 1 - rng.below(span);
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << rng.below(8)));
    }
    message_for(damaged);
  }
}

}  // namespace
}  // namespace penstock::exported
