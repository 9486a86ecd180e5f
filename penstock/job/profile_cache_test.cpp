#include "penstock/job/profile_cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/model/builder.h"
#include "penstock/model/zoo.h"
#include "penstock/util/files/files.h"

namespace penstock::job {
namespace {

namespace fs = std::filesystem;

/// A folder that goes with the test, and no variables of the user's.
class ProfileCacheTest : public ::testing::Test {
 protected:
  ProfileCacheTest() {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("penstock-profile-cache-" + std::to_string(getpid()) + test->name());
    unsetenv("PENSTOCK_PROFILE_CACHE");
  }
  ~ProfileCacheTest() override { fs::remove_all(folder_); }

  ProfileCache cache() const { return ProfileCache({.folder = folder_}); }

  fs::path folder_;
};

model::Model small_model(int64_t width = 8) {
  return model::make_model({.name = "mlp", .width = width, .depth = 2});
}

profile::Share share_of(const model::Model& model, double error = 0.01) {
  profile::Profile profile;
  profile.model = model.name();
  profile.device = "a device";
  profile.source = "measured";
  profile.batch_size = 8;
  profile.samples = 10;
  profile.graph = model.graph();
  profile.pass = {.mean_ns = 1000, .spread = 0.1, .error = error, .stretches = 8};
  for (int l = 0; l < model.graph().num_layers(); ++l)
    profile.costs.push_back({.forward_ns = 10, .backward_ns = 20, .output_bytes = {40}});
  return profile::whole_share(profile);
}

const model::ProfilerOptions kOptions{.batch_size = 8, .most_samples = 100, .wanted_error = 0.02};

TEST_F(ProfileCacheTest, WhatIsKeptIsFound) {
  const model::Model model = small_model();
  const std::string key = profile_key(model, kOptions);
  EXPECT_FALSE(cache().find(key, kOptions));
  ASSERT_TRUE(cache().keep(key, kOptions, share_of(model)));
  const auto found = cache().find(key, kOptions);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->share, share_of(model));
  const auto age = std::chrono::system_clock::now() - found->measured;
  EXPECT_LT(age, std::chrono::minutes(1));
  EXPECT_FALSE(ProfileCache({.folder = folder_, .looks_up = false}).find(key, kOptions));
  EXPECT_FALSE(ProfileCache(CacheChoice{}).find(key, kOptions));
  EXPECT_FALSE(ProfileCache(CacheChoice{}).keep(key, kOptions, share_of(model)));
}

// Each of these may change times or bytes.
TEST_F(ProfileCacheTest, OtherWorkHasAnotherKey) {
  const std::vector<std::function<void(model::ProfilerOptions&)>> changes = {
      [](auto& o) { o.batch_size = 9; },
      [](auto& o) { o.threads = 2; },
      [](auto& o) { o.concurrency = 2; },
      [](auto& o) { o.device = "cuda:0"; },
      [](auto& o) { o.precision = Precision::BFloat16; },
      [](auto& o) { o.optimizer.kind = model::OptimizerKind::Adam; },
      [](auto& o) { o.optimizer.momentum = 0.5; },
      [](auto& o) { o.optimizer.nesterov = true; },
      [](auto& o) { o.loss.name = "mean-squared-error"; },
      [](auto& o) { o.loss.label_smoothing = 0.1; },
      [](auto& o) { o.loss.ignore_index = 0; },
      [](auto& o) { o.device_graphs = true; },
      [](auto& o) { o.repeats = model::Repeats::All; },
      [](auto& o) {
        o.layers = profile::LayerRange{LayerId{0}, LayerId{1}};
      },
      [](auto& o) {
        o.lengths = {{.share = 1, .input_shapes = {{28, 28}}}};
      }};
  const std::string key = profile_key(small_model(), kOptions);
  ASSERT_FALSE(key.empty());
  for (size_t k = 0; k < changes.size(); ++k) {
    model::ProfilerOptions other = kOptions;
    other.optimizer.momentum = 0;
    model::ProfilerOptions changed = other;
    changes[k](changed);
    EXPECT_NE(profile_key(small_model(), other), profile_key(small_model(), changed)) << k;
  }
  EXPECT_NE(profile_key(small_model(9), kOptions), key);
  // Inputs of other shapes whose outputs are of one.
  const auto pooled = [](int64_t side) {
    model::ModelBuilder net("pooled");
    return net.build(net.adaptive_avg_pool2d(net.input({3, side, side}), 1));
  };
  EXPECT_NE(profile_key(pooled(4), kOptions), profile_key(pooled(8), kOptions));
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  EXPECT_NE(profile_key(small_model(), kOptions), key);
  unsetenv("ONEDNN_MAX_CPU_ISA");
  model::ProfilerOptions same = kOptions;
  same.seed = 7;
  same.optimizer.weight_decay = kOptions.optimizer.weight_decay;
  EXPECT_EQ(profile_key(small_model(), same), key);
}

TEST_F(ProfileCacheTest, ALayerThatDoesNotSayWhatItDoesIsNeverKept) {
  class Silent final : public model::Layer {
    std::string kind() const override { return "silent"; }
    model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                           const model::ForwardContext&) const override {
      return {inputs[0]};
    }
  };
  model::ModelBuilder net("silent");
  const model::Value x = net.input({4});
  const model::Model model = net.build(net.apply(std::make_shared<Silent>(), {x}));
  EXPECT_EQ(profile_key(model, kOptions), "");
  EXPECT_FALSE(cache().keep("", kOptions, share_of(model)));
  EXPECT_FALSE(cache().find("", kOptions));
}

TEST_F(ProfileCacheTest, AShorterMeasurementIsEnoughWhereItWasSure) {
  const model::Model model = small_model();
  const std::string key = profile_key(model, kOptions);
  model::ProfilerOptions longer = kOptions;
  longer.most_samples = 500;
  ASSERT_TRUE(cache().keep(key, kOptions, share_of(model, 0.05)));
  EXPECT_TRUE(cache().find(key, kOptions));
  EXPECT_FALSE(cache().find(key, longer)) << "five per cent from 100 passes, and 500 are wanted";
  ASSERT_TRUE(cache().keep(key, kOptions, share_of(model, 0.01)));
  EXPECT_TRUE(cache().find(key, longer));
}

TEST_F(ProfileCacheTest, DamagedAndOldFilesCountAsNone) {
  const model::Model model = small_model();
  const std::string key = profile_key(model, kOptions);
  ASSERT_TRUE(cache().keep(key, kOptions, share_of(model)));
  const fs::path file = fs::directory_iterator(folder_)->path();
  const std::string good = read_file(file);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string old = "\"measured\": " + std::to_string(std::time(nullptr) - 31 * 24 * 3600);
  const size_t begin = good.find("\"measured\": ");
  const std::string measured = good.substr(begin, good.find_first_of(",\n", begin) - begin);
  for (const std::string& bad :
       {std::string(), std::string("\0\0", 2), good.substr(0, good.size() / 2), with("1", "99"),
        with("penstock-cached-profile", "penstock-profile"), with(measured, old),
        with("samples", "samplez"), with(measured, "\"measured\": 9223372036854775807"),
        with("\"batch_size\": 8", "\"batch_size\": 9"),
        with("\"forward_ns\": 10", "\"forward_ns\": -10")}) {
    std::ofstream(file, std::ios::binary) << bad;
    EXPECT_FALSE(cache().find(key, kOptions)) << bad.substr(0, 200);
    ASSERT_TRUE(cache().keep(key, kOptions, share_of(model)));
    EXPECT_TRUE(cache().find(key, kOptions));
  }
}

TEST_F(ProfileCacheTest, TheOldestFilesGo) {
  const auto own_name = [](int k) { return fmt::format("{:016x}.json", k); };
  fs::create_directories(folder_);
  for (int k = 0; k < ProfileCache::kMostFiles + 5; ++k) {
    const fs::path file = folder_ / own_name(k);
    std::ofstream(file) << "{}";
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1000 - k));
  }
  // The user's files are no part of the cache, whatever their age.
  for (const char* name : {"notes.txt", "annotations.json", "00000000000000000.json"}) {
    std::ofstream(folder_ / name) << "the user's";
    fs::last_write_time(folder_ / name, fs::file_time_type::clock::now() - std::chrono::years(9));
  }
  const model::Model model = small_model();
  ASSERT_TRUE(cache().keep(profile_key(model, kOptions), kOptions, share_of(model)));
  EXPECT_TRUE(cache().find(profile_key(model, kOptions), kOptions));
  EXPECT_FALSE(fs::exists(folder_ / own_name(5)));
  EXPECT_TRUE(fs::exists(folder_ / own_name(6)));
  for (const char* name : {"notes.txt", "annotations.json", "00000000000000000.json"})
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
}

TEST_F(ProfileCacheTest, AFolderThatCannotBeIsNoError) {
  const model::Model model = small_model();
  std::ofstream file(folder_);
  const ProfileCache inside({.folder = folder_ / "profiles"});
  EXPECT_FALSE(inside.keep(profile_key(model, kOptions), kOptions, share_of(model)));
  EXPECT_FALSE(inside.find(profile_key(model, kOptions), kOptions));
}

TEST_F(ProfileCacheTest, TheUsersFolderIsWhereVariablesSay) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  setenv("HOME", "/home/someone", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cache_choice("").folder, "/home/someone/.cache/penstock/profiles");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(cache_choice("").folder, "/home/someone/.cache/penstock/profiles");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(cache_choice("").folder, "/caches/penstock/profiles");
  EXPECT_TRUE(cache_choice("").looks_up);
  EXPECT_EQ(cache_choice("new").folder, "/caches/penstock/profiles");
  EXPECT_FALSE(cache_choice("new").looks_up);
  EXPECT_EQ(cache_choice("off").folder, "");
  EXPECT_EQ(cache_choice("here").folder, "here");
  setenv("PENSTOCK_PROFILE_CACHE", "off", 1);
  EXPECT_EQ(cache_choice("").folder, "");
  EXPECT_EQ(cache_choice("here").folder, "here");
  unsetenv("PENSTOCK_PROFILE_CACHE");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace penstock::job
