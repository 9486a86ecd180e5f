#include "penstock/exported/weight_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "penstock/exported/program.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"
#include "penstock/util/files/safetensors.h"
#include "penstock/util/files/test_zip.h"
#include "penstock/util/files/zip_archive.h"

namespace penstock::exported {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A folder with meta.pt2, which has no weights, and two files that have them.
class WeightFiles : public testing::Test {
 protected:
  WeightFiles() : folder_(fmt::format("{}penstock-weights-{}", testing::TempDir(), ::getpid())) {
    std::filesystem::create_directories(folder_ + "/weights");
    const std::string fixture = std::string(PENSTOCK_TEST_DATA) + "/meta.pt2";
    ZipArchive archive(fixture, "a test");
    for (const auto& [name, member] : archive.members())
      members_.emplace_back(name, archive.read(name, 1 << 20));
    reference_ = {{"format", "penstock-weights"}, {"version", 1}, {"folder", "weights"}};
    int k = 0;
    for (const auto& [key, tensor] : read_program(fixture).tensors) {
      if (tensor.num_bytes != 0) continue;
      std::vector<int64_t> shape;
      for (const SymbolicInt& size : tensor.meta.sizes) shape.push_back(size.value);
      infos_[fmt::format("{}.safetensors", k++ % 2)].push_back(
          {.name = key,
           .dtype = tensor.meta.type == ScalarType::Long ? "I64" : "F32",
           .shape = shape});
    }
    for (const auto& [file, infos] : infos_) finish(file);
  }
  ~WeightFiles() override { std::filesystem::remove_all(folder_); }

  /// Writes it, with its tensors, into the reference, too.
  void finish(const std::string& file) {
    const std::string header = make_safetensors_header(infos_[file]);
    const std::string data(static_cast<size_t>(infos_[file].back().end), 'x');
    std::ofstream(folder_ + "/weights/" + file, std::ios::binary) << header << data;
    reference_["files"][file] = {{"bytes", header.size() + data.size()},
                                 {"header_crc32", crc32_of(header)}};
    for (const TensorInfo& info : infos_[file]) {
      const std::string bytes(static_cast<size_t>(info.end - info.begin), 'x');
      reference_["tensors"][info.name] = {
          {"file", file}, {"name", info.name}, {"crc32", crc32_of(bytes)}};
    }
  }

  Program read() const {
    auto members = members_;
    const std::string& first = members.front().first;
    members.emplace_back(first.substr(0, first.find('/')) + "/extra/penstock_weights.json",
                         reference_.dump());
    std::ofstream(folder_ + "/net.pt2", std::ios::binary) << make_zip(members);
    return read_program(folder_ + "/net.pt2");
  }
  /// What reading says after a change of the reference.
  std::string refusal(const std::function<void(Json&)>& change) {
    const Json before = reference_;
    change(reference_);
    std::string message;
    try {
      read();
    } catch (const Error& error) {
      message = error.what();
    }
    reference_ = before;
    return message;
  }
  Json& tensor(Json& reference) const { return reference["tensors"].begin().value(); }
  std::string key() const { return reference_["tensors"].begin().key(); }

  std::string folder_;
  std::vector<std::pair<std::string, std::string>> members_;
  std::map<std::string, std::vector<TensorInfo>> infos_;
  Json reference_;
};

TEST_F(WeightFiles, TensorsHaveTheirPlaces) {
  const Program program = read();
  ASSERT_GE(infos_.size(), 2U);
  for (const auto& [file, infos] : infos_) {
    for (const TensorInfo& info : infos) {
      const StoredTensor& stored = program.tensors.at(info.name);
      EXPECT_EQ(stored.file, folder_ + "/weights/" + file);
      EXPECT_EQ(stored.num_bytes, info.end - info.begin);
      EXPECT_EQ(stored.crc32, crc32_of(std::string(static_cast<size_t>(stored.num_bytes), 'x')));
    }
  }
}

TEST_F(WeightFiles, OneNameForTwoIsATie) {
  reference_["tensors"]["norm.bias"] = reference_["tensors"]["norm.weight"];
  const Program program = read();
  EXPECT_EQ(program.tensors.at("norm.bias").place(), program.tensors.at("norm.weight").place());
  EXPECT_NE(program.tensors.at("fc.bias").place(), program.tensors.at("norm.weight").place());
}

TEST_F(WeightFiles, WhatDoesNotFitIsRefused) {
  const std::string file = tensor(reference_)["file"].get<std::string>();
  EXPECT_EQ(refusal([](Json&) {}), "");
  EXPECT_THAT(refusal([](Json& r) { r["version"] = 2; }), HasSubstr("version"));
  EXPECT_THAT(refusal([](Json& r) { r["tensors"]["nothing"] = {}; }),
              AllOf(HasSubstr("nothing"), HasSubstr("the program has no such tensor")));
  EXPECT_THAT(refusal([&](Json& r) { tensor(r)["name"] = "other"; }),
              AllOf(HasSubstr(file + "' has no tensor 'other'"), HasSubstr(key())));
  EXPECT_THAT(refusal([&](Json& r) { tensor(r)["file"] = "../" + file; }),
              HasSubstr("expected the name of one of its files"));
  EXPECT_THAT(refusal([&](Json& r) { r["files"].erase(file); }),
              HasSubstr("expected the name of one of its files"));
  EXPECT_THAT(refusal([&](Json& r) { r["files"][file]["bytes"] = 5; }), HasSubstr(file + "' has "));
  EXPECT_THAT(refusal([&](Json& r) { r["files"][file]["header_crc32"] = 5; }),
              HasSubstr(file + "' has another header"));
  EXPECT_THAT(refusal([](Json& r) { r["folder"] = "elsewhere"; }),
              AllOf(HasSubstr("elsewhere/"), HasSubstr("is missing")));
  EXPECT_THAT(refusal([&](Json& r) { tensor(r)["crc32"] = -1; }), HasSubstr("crc32"));
  infos_[file].front().shape.push_back(1);
  EXPECT_THAT(refusal([&](Json& r) {
                finish(file);
                r = reference_;
              }),
              AllOf(HasSubstr(file), HasSubstr("the program"), HasSubstr("takes F32 of ")));
  infos_[file].front().shape.pop_back();
  infos_[file].front().dtype = "I32";
  EXPECT_THAT(refusal([&](Json& r) {
                finish(file);
                r = reference_;
              }),
              HasSubstr("is I32 of "));
}

}  // namespace
}  // namespace penstock::exported
