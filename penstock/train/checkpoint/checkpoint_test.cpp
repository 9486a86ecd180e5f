#include "penstock/train/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "penstock/model/builder.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/folder_lock.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/checkpoint/tied_state.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// conv1, norm, relu_..., flatten, fc: layers with weights, with buffers, without state.
model::Model make_model(int64_t features = 3, const std::string& last = "fc",
                        const std::string& name = "tiny") {
  model::ModelBuilder net(name);
  model::Value x = net.input({1, 4, 4});
  x = net.conv2d(x, {.channels = 2, .kernel = 3, .padding = 1, .name = "conv1"});
  x = net.relu(net.batch_norm2d(x, {.name = "norm"}), "relu");
  return net.build(net.linear(net.flatten(x, "flatten"), {.features = features, .name = last}));
}

/// The same beside two frozen parameters, of which nobody needs the values to save and load.
model::Model with_frozen(const std::string& values) {
  model::Model model = make_model();
  const auto unread = []() -> at::Tensor { throw std::runtime_error("read"); };
  model.set_extra_state(
      {{.key = "base.weight", .values = unread, .frozen = values},
       {.key = "head.weight", .values = unread, .same_as = "base.weight", .frozen = values}});
  return model;
}

Checkpoint make_checkpoint(const model::Model& model, int64_t step, int64_t seed = 1) {
  Checkpoint result{{.model = model.name(),
                     .epoch = 2,
                     .next_mini_batch = 17,
                     .step = step,
                     .seed = UINT64_MAX - 1,
                     .mini_batch_size = 64,
                     .train_samples = 2000,
                     .shuffle = true,
                     .optimizer = "adam"},
                    {}};
  torch::manual_seed(static_cast<uint64_t>(seed));
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    LayerState state;
    for (const auto& spec : model.layer(LayerId{i}).parameters()) {
      state.weights.push_back(torch::randn(spec.shape));
      for (const char* name : {"exp_avg", "exp_avg_sq"})
        state.optimizer[name].push_back(torch::randn(spec.shape));
    }
    for (const auto& spec : model.layer(LayerId{i}).buffers())
      state.buffers.push_back(torch::randn(spec.shape));
    result.layers.push_back(std::move(state));
  }
  return result;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

void expect_same(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.next_mini_batch, b.next_mini_batch);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.mini_batch_size, b.mini_batch_size);
  EXPECT_EQ(a.train_samples, b.train_samples);
  EXPECT_EQ(a.shuffle, b.shuffle);
  EXPECT_EQ(a.optimizer, b.optimizer);
  EXPECT_EQ(a.settings, b.settings);
  EXPECT_EQ(a.classes, b.classes);
  EXPECT_EQ(a.rate, b.rate);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_TRUE(same(a.layers[i].weights, b.layers[i].weights)) << i;
    EXPECT_TRUE(same(a.layers[i].buffers, b.layers[i].buffers)) << i;
    ASSERT_EQ(a.layers[i].optimizer.size(), b.layers[i].optimizer.size()) << i;
    for (const auto& [name, tensors] : a.layers[i].optimizer)
      EXPECT_TRUE(same(tensors, b.layers[i].optimizer.at(name))) << i << name;
  }
}

std::string load_refusal(const fs::path& folder, const model::Model& model = make_model()) {
  return message_of<CheckpointError>([&] { load_checkpoint(folder, model); });
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Replaces text in a manifest and corrects its checksum, as an attacker would.
void forge_manifest(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = read_test_file(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const size_t checksum = text.rfind(",\n  \"crc32\"");
  text = text.substr(0, checksum) +
         fmt::format(",\n  \"crc32\": \"{:08x}\"\n}}\n", crc32_of(text.substr(0, checksum)));
  write_test_file(path, text);
}

/// fc2 uses the weight of fc1 and has its own bias; fc3 has no parameters of its own.
model::Model tied_model() {
  model::ModelBuilder net("tied");
  model::Value x = net.linear(net.input({4}), {.features = 4, .name = "fc1"});
  x = net.linear(x, {.features = 4, .name = "fc2"});
  x = net.linear(x, {.features = 4, .bias = false, .name = "fc3"});
  net.tie("fc2", "weight", "fc1", "weight");
  net.tie("fc3", "weight", "fc1", "weight");
  return net.build(x);
}

/// Makes every tied tensor equal to its owner's, as after a run.
Checkpoint tied_checkpoint(const model::Model& model) {
  Checkpoint result = make_checkpoint(model, 3);
  for (const size_t layer : {1, 2}) {
    result.layers[layer].weights[0] = result.layers[0].weights[0].clone();
    for (auto& [name, tensors] : result.layers[layer].optimizer)
      tensors[0] = result.layers[0].optimizer.at(name)[0].clone();
  }
  return result;
}

TEST(Checkpoint, FrozenParametersAreNotInIt) {
  const TestFolder folder;
  const model::Model model = with_frozen("one");
  save_checkpoint(folder.path(), model, make_checkpoint(model, 1), 2);
  EXPECT_EQ(load_checkpoint(folder.path(), model).step, 1);
  EXPECT_THAT([&] { load_checkpoint(folder.path(), with_frozen("another")); },
              testing::ThrowsMessage<CheckpointError>(
                  AllOf(HasSubstr("beside other frozen parameters"), HasSubstr("2 tensors"))));
  EXPECT_THROW(load_checkpoint(folder.path(), make_model()), CheckpointError);
}

TEST(Checkpoint, TiedWeightsAreStoredOnceAndLoadedEverywhere) {
  const TestFolder folder;
  const model::Model model = tied_model();
  const Checkpoint saved = tied_checkpoint(model);
  const fs::path path = save_checkpoint(folder.path(), model, saved);
  EXPECT_THAT(names_in(path),
              testing::ElementsAre("layer-00000-fc1.safetensors", "layer-00001-fc2.safetensors",
                                   "manifest.json", "weights.pt"));
  EXPECT_THAT(read_test_file(path / "layer-00001-fc2.safetensors"),
              testing::Not(HasSubstr("weights.weight")));
  expect_same(load_checkpoint(folder.path(), model), saved);
}

TEST(Checkpoint, RefusesOptimiserStatesThatDifferFromLayerToLayer) {
  const TestFolder folder;
  const model::Model model = tied_model();
  const fs::path path = save_checkpoint(folder.path(), model, tied_checkpoint(model));
  forge_manifest(path / "manifest.json", "\"exp_avg\",", "");  // that of fc1
  EXPECT_THAT(load_refusal(folder.path(), model),
              AllOf(HasSubstr("layer 'fc2': expected the optimiser states [exp_avg_sq]"),
                    HasSubstr("found [exp_avg, exp_avg_sq]")));
}

TEST(Checkpoint, RestoringTiesRefusesAnOptimiserStateThatLacksTensors) {
  model::ModelBuilder net("tied");
  model::Value x = net.linear(net.input({4}), {.features = 4, .name = "fc1"});
  x = net.linear(x, {.features = 4, .name = "fc2"});
  net.tie("fc2", "bias", "fc1", "bias");
  const model::Model model = net.build(x);
  Checkpoint checkpoint = make_checkpoint(model, 3);
  for (size_t i = 0; i < 2; ++i)
    checkpoint.layers[i] = own_state(model, LayerId{static_cast<int32_t>(i)}, checkpoint.layers[i]);
  checkpoint.layers[1].optimizer.clear();
  EXPECT_THAT(message_of<CheckpointError>([&] { restore_ties(model, checkpoint.layers); }),
              HasSubstr("'fc2'"));
}

TEST(Checkpoint, OfTiedWeightsDoesNotFitAModelWithoutTies) {
  const TestFolder folder;
  save_checkpoint(folder.path(), tied_model(), tied_checkpoint(tied_model()));
  model::ModelBuilder net("tied");
  model::Value x = net.linear(net.input({4}), {.features = 4, .name = "fc1"});
  x = net.linear(x, {.features = 4, .name = "fc2"});
  const model::Model untied =
      net.build(net.linear(x, {.features = 4, .bias = false, .name = "fc3"}));
  EXPECT_THAT(load_refusal(folder.path(), untied), HasSubstr("another model"));
}

TEST(Checkpoint, ReadsBackWhatWasSaved) {
  const TestFolder folder;
  const model::Model model = make_model();
  const Checkpoint saved = make_checkpoint(model, 938);
  EXPECT_FALSE(has_checkpoint(folder.path()));
  const fs::path path = save_checkpoint(folder / "a/b", model, saved);
  EXPECT_EQ(path, folder / "a/b/step-000000938");
  EXPECT_TRUE(has_checkpoint(folder / "a/b"));
  expect_same(load_checkpoint(folder / "a/b", model), saved);
  expect_same(load_checkpoint(path, model), saved);
  EXPECT_THAT(names_in(folder / "a/b"), testing::ElementsAre("latest", "step-000000938"));
  EXPECT_THAT(names_in(path),
              testing::ElementsAre("layer-00000-conv1.safetensors", "layer-00001-norm.safetensors",
                                   "layer-00004-fc.safetensors", "manifest.json", "weights.pt"));
}

TEST(Checkpoint, ViewsAndStridedTensorsAreSavedAsTheirValues) {
  const TestFolder folder;
  const model::Model model = make_model();
  Checkpoint checkpoint = make_checkpoint(model, 1);
  at::Tensor& weight = checkpoint.layers.back().weights[0];
  weight = torch::randn({weight.size(1) + 5, weight.size(0)}).slice(0, 3, 3 + weight.size(1)).t();
  weight.requires_grad_(true);
  save_checkpoint(folder.path(), model, checkpoint);
  expect_same(load_checkpoint(folder.path(), model), checkpoint);
  EXPECT_LT(fs::file_size(folder / "step-000000001/weights.pt"), 8000U);
}

TEST(Checkpoint, TheNewestIsLoadedAndOldOnesAreRemoved) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const int step : {1, 2, 3, 4})
    save_checkpoint(folder.path(), model, make_checkpoint(model, step), 2);
  EXPECT_THAT(names_in(folder.path()),
              testing::ElementsAre("latest", "step-000000003", "step-000000004"));
  EXPECT_EQ(load_checkpoint(folder.path(), model).step, 4);
  EXPECT_EQ(load_checkpoint(folder / "step-000000003", model).step, 3);
}

TEST(Checkpoint, TheBestStaysBesideTheNewest) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const int step : {1, 2, 3, 4, 5}) {
    save_checkpoint(folder.path(), model, make_checkpoint(model, step), {1, step > 2 ? 2 : 1});
    if (step <= 2) EXPECT_TRUE(mark_best(folder.path(), step));
  }
  EXPECT_THAT(names_in(folder.path()),
              testing::ElementsAre("best", "latest", "step-000000002", "step-000000005"));
  EXPECT_EQ(load_checkpoint(folder / "best", model).step, 2);
  EXPECT_EQ(load_checkpoint(folder.path(), model).step, 5);
  EXPECT_EQ(folder_of_checkpoints(folder / "best"), fs::weakly_canonical(folder.path()));
}

TEST(Checkpoint, NothingButItsOwnLinkBecomesTheBest) {
  const TestFolder folder;
  const model::Model model = make_model();
  save_checkpoint(folder.path(), model, make_checkpoint(model, 1));
  EXPECT_FALSE(mark_best(folder.path(), 2)) << "it is not there";
  write_test_file(folder / "best", "somebody's");
  EXPECT_FALSE(mark_best(folder.path(), 1));
  EXPECT_EQ(read_test_file(folder / "best"), "somebody's");
  fs::create_symlink("nowhere", folder / ".tmp-best-77");
  save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  EXPECT_FALSE(fs::is_symlink(folder / ".tmp-best-77")) << "an interrupted call has left it";
}

TEST(Checkpoint, OldOnesWithAMeanAreRemoved) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const int64_t step : {1, 2}) {
    Checkpoint checkpoint = make_checkpoint(model, step);
    for (LayerState& layer : checkpoint.layers)
      layer.optimizer[std::string(model::kAverage)] = layer.weights;
    save_checkpoint(folder.path(), model, checkpoint, 1);
  }
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-000000002"}));
  EXPECT_TRUE(fs::exists(folder.path() / "step-000000002" / "average.pt"));
}

TEST(Checkpoint, ARunThatWasRestartedKeepsItsOwnCheckpoint) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const int step : {800, 900})
    save_checkpoint(folder.path(), model, make_checkpoint(model, step));
  save_checkpoint(folder.path(), model, make_checkpoint(model, 5), 1);
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("latest", "step-000000005"));
  EXPECT_EQ(load_checkpoint(folder.path(), model).step, 5);
}

TEST(Checkpoint, SavingTheSameStepAgainReplacesIt) {
  const TestFolder folder;
  const model::Model model = make_model();
  save_checkpoint(folder.path(), model, make_checkpoint(model, 7, 1));
  const Checkpoint second = make_checkpoint(model, 7, 2);
  save_checkpoint(folder.path(), model, second);
  expect_same(load_checkpoint(folder.path(), model), second);
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("latest", "step-000000007"));
}

TEST(Checkpoint, LeftoversAreIgnoredAndRemovedByTheNextSave) {
  const TestFolder folder;
  const model::Model model = make_model();
  fs::create_directory(folder / ".tmp-step-000000009-123");
  write_test_file(folder / ".tmp-step-000000009-123/manifest.json", "{");
  EXPECT_FALSE(has_checkpoint(folder.path()));
  save_checkpoint(folder.path(), model, make_checkpoint(model, 1));
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("latest", "step-000000001"));
}

TEST(Checkpoint, OnlyWhatSavesMakeIsTakenForALeftover) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const char* name : {".tmp-latest-12", ".tmp-notes", ".tmp-latest-", ".tmp-latest-12-old",
                           ".tmp-step-000000009", ".tmp-old-step-9", ".tmp-step-000000009-x"})
    write_test_file(folder / name, "x");
  for (const char* name : {".tmp-step-000000009-12", ".tmp-step-000000009-12-old",
                           ".tmp-old-step-000000009", ".tmp-step-000000008-12", ".tmp-mine"}) {
    fs::create_directory(folder / name);
    write_test_file(folder / name / "layer-00000-conv1.safetensors", "x");
  }
  write_test_file(folder / ".tmp-step-000000008-12/notes.txt", "x");
  save_checkpoint(folder.path(), model, make_checkpoint(model, 1));
  EXPECT_THAT(
      names_in(folder.path()),
      testing::ElementsAre(".tmp-latest-", ".tmp-latest-12-old", ".tmp-mine", ".tmp-notes",
                           ".tmp-old-step-9", ".tmp-step-000000008-12", ".tmp-step-000000009",
                           ".tmp-step-000000009-x", "latest", "step-000000001"));
}

TEST(Checkpoint, AFolderThatHoldsMoreThanACheckpointIsNeverRemoved) {
  const TestFolder folder;
  const model::Model model = make_model();
  save_checkpoint(folder.path(), model, make_checkpoint(model, 1));
  fs::create_directories(folder / "step-000000001/step-000000002");
  for (const int step : {2, 3, 4})
    save_checkpoint(folder.path(), model, make_checkpoint(model, step), 1);
  EXPECT_THAT(names_in(folder.path()),
              testing::ElementsAre("latest", "step-000000001", "step-000000004"));
  EXPECT_TRUE(fs::exists(folder / "step-000000001/step-000000002"));
}

TEST(Checkpoint, SavingAStepAgainLeavesWhatElseLiesInItsFolder) {
  const TestFolder folder;
  const model::Model model = make_model();
  save_checkpoint(folder.path(), model, make_checkpoint(model, 7, 1));
  write_test_file(folder / "step-000000007/notes.txt", "mine");
  const Checkpoint second = make_checkpoint(model, 7, 2);
  save_checkpoint(folder.path(), model, second);
  expect_same(load_checkpoint(folder.path(), model), second);
  EXPECT_EQ(read_test_file(folder / "step-000000007/notes.txt"), "mine");
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("latest", "step-000000007"));
}

TEST(Checkpoint, IsNotSavedIntoAnotherCheckpoint) {
  const TestFolder folder;
  const model::Model model = make_model();
  const fs::path path = save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  EXPECT_THAT(
      message_of<ConfigError>([&] { save_checkpoint(path, model, make_checkpoint(model, 4)); }),
      HasSubstr("is a checkpoint itself"));
  EXPECT_EQ(folder_of_checkpoints(path), folder.path());
  EXPECT_EQ(folder_of_checkpoints(path / ""), folder.path());
  EXPECT_EQ(folder_of_checkpoints(folder.path()), folder.path());
  EXPECT_EQ(folder_of_checkpoints(folder / "missing"), folder / "missing");
  EXPECT_EQ(folder_of_checkpoints(""), "");
  EXPECT_TRUE(fs::equivalent(folder_of_checkpoints(path / "."), folder.path()));
  fs::create_directory(folder / "elsewhere");
  fs::create_symlink(path, folder / "elsewhere/best");
  EXPECT_TRUE(fs::equivalent(folder_of_checkpoints(folder / "elsewhere/best"), folder.path()));
}

TEST(Checkpoint, AFolderThatIsNotThereCannotHaveTheNameOfOne) {
  const TestFolder folder;
  const model::Model model = make_model();
  save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  for (const char* name : {"step-000000004", "step-000000004/"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { make_checkpoint_directory(folder / name); }),
                AllOf(HasSubstr("there is no checkpoint"), HasSubstr("step-000000004'"),
                      HasSubstr("holds step-000000003")));
  }
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("latest", "step-000000003"));
}

TEST(Checkpoint, UnderTheNameOfAnotherStepIsRefused) {
  const TestFolder folder;
  const model::Model model = make_model();
  save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  fs::rename(folder / "step-000000003", folder / "step-000000900");
  write_test_file(folder / "latest", latest_text("step-000000900"));
  EXPECT_THAT(load_refusal(folder.path()),
              AllOf(HasSubstr("step-000000900"), HasSubstr("found that of step 3")));
  fs::rename(folder / "step-000000900", folder / "best");
  EXPECT_EQ(load_checkpoint(folder / "best", model).step, 3);
}

TEST(Checkpoint, OfAnOlderVersionDoesNotSayWhetherItShuffled) {
  const TestFolder folder;
  const model::Model model = make_model();
  const fs::path path = save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  EXPECT_EQ(load_checkpoint(path, model).shuffle, true);
  forge_manifest(path / "manifest.json", "  \"shuffle\": true,\n", "");
  EXPECT_EQ(load_checkpoint(path, model).shuffle, std::nullopt);
}

TEST(Checkpoint, KeepsTheOptionsOfTheTraining) {
  const TestFolder folder;
  const model::Model model = make_model();
  Checkpoint saved = make_checkpoint(model, 3);
  saved.settings = {{"--lr", "0.05"}, {"--optimizer", "sgd"}};
  const fs::path path = save_checkpoint(folder.path(), model, saved);
  EXPECT_EQ(newest_position(folder.path(), model).settings, saved.settings);
  forge_manifest(path / "manifest.json", "\"0.05\"", "0.05");
  EXPECT_THAT(load_refusal(folder.path()), HasSubstr("settings"));
}

TEST(Checkpoint, KeepsWhatTheLearningRatesDependOn) {
  const TestFolder folder;
  const model::Model model = make_model();
  Checkpoint saved = make_checkpoint(model, 3);
  saved.rate = {.schedule_steps = 17, .scale = 0.1, .base = 1.0 / 3};
  const fs::path path = save_checkpoint(folder.path(), model, saved);
  expect_same(load_checkpoint(folder.path(), model), saved);  // to the last bit
  forge_manifest(path / "manifest.json", "\"scale\": 0.1", "\"scale\": -1");
  EXPECT_THAT(load_refusal(folder.path()), HasSubstr("learning_rate"));
}

TEST(Checkpoint, KeepsWhatEvaluationsHaveSaid) {
  const TestFolder folder;
  const model::Model model = make_model();
  Checkpoint saved = make_checkpoint(model, 3);
  saved.rate.plateau = {
      .rate = 0.1 / 3, .first = 0.1, .best = -0.7, .without_improvement = 2, .cooling = 1};
  saved.rate.evaluated_at = 3;
  saved.mean = {.began = 2, .values = {0.1, 1.0 / 7}};
  const fs::path path = save_checkpoint(folder.path(), model, saved);
  expect_same(load_checkpoint(folder.path(), model), saved);
  forge_manifest(path / "manifest.json", "\"began\": 2", "\"began\": -2");
  EXPECT_THAT(load_refusal(folder.path()), HasSubstr("weight_mean"));
}

TEST(Checkpoint, KeepsTheNamesOfItsClassesInTheirOrder) {
  const TestFolder folder;
  const model::Model model = make_model();
  Checkpoint saved = make_checkpoint(model, 3);
  saved.classes = {"1", "10", "2", "\u00e9"};
  save_checkpoint(folder.path(), model, saved);
  EXPECT_EQ(newest_position(folder.path(), model).classes, saved.classes);
}

TEST(Checkpoint, WeightsOfOtherClassesAreRefused) {
  CheckpointPosition position;
  position.classes = {"1", "10", "2"};
  const auto refusal = [&](const std::vector<std::string>& classes) {
    return message_of<ConfigError>([&] { check_same_classes(position, classes); });
  };
  EXPECT_NO_THROW(check_same_classes(position, {"1", "10", "2"}));
  EXPECT_NO_THROW(check_same_classes(position, {})) << "data whose classes have no names";
  EXPECT_NO_THROW(check_same_classes(CheckpointPosition(), {"a"})) << "an older checkpoint";
  EXPECT_THAT(refusal({"1", "2", "10"}), HasSubstr("of which class 1 is '10'; the data has 3, and "
                                                   "class 1 is '2'"));
  EXPECT_THAT(refusal({"1", "10"}),
              HasSubstr("class 2 is '2'; the data has 2, and class 2 is none"));
}

TEST(Checkpoint, WithoutLatestTheNewestFolderIsLoaded) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const int step : {1, 2}) save_checkpoint(folder.path(), model, make_checkpoint(model, step));
  fs::remove(folder / "latest");
  EXPECT_TRUE(has_checkpoint(folder.path()));
  EXPECT_EQ(load_checkpoint(folder.path(), model).step, 2);
}

TEST(Checkpoint, AFlippedBitAnywhereIsDetected) {
  const TestFolder folder;
  const model::Model model = make_model();
  const fs::path path = save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  std::vector<fs::path> files{folder / "latest"};
  for (const std::string& name : names_in(path)) files.push_back(path / name);
  for (const fs::path& file : files) {
    const std::string good = read_test_file(file);
    const size_t stride = std::max<size_t>(good.size() / 80, 1);
    for (size_t at = 0; at < good.size(); at += stride) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1 << at % 8);
      write_test_file(file, bad);
      EXPECT_FALSE(load_refusal(folder.path()).empty()) << file << " byte " << at;
    }
    write_test_file(file, good);
  }
  EXPECT_EQ(load_checkpoint(folder.path(), model).step, 3);
}

TEST(Checkpoint, ATruncatedLongerOrMissingFileIsDetected) {
  const TestFolder folder;
  const model::Model model = make_model();
  const fs::path path = save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  for (const std::string& name : names_in(path)) {
    const std::string good = read_test_file(path / name);
    const size_t stride = std::max<size_t>(good.size() / 50, 1);
    for (size_t length = 0; length < good.size(); length += stride) {
      write_test_file(path / name, good.substr(0, length));
      EXPECT_THAT(load_refusal(folder.path()), HasSubstr(name)) << length;
    }
    write_test_file(path / name, good + "x");
    EXPECT_THAT(load_refusal(folder.path()), HasSubstr(name));
    fs::remove(path / name);
    // A folder without a manifest is not a checkpoint, so the message names only the missing file.
    EXPECT_THAT(load_refusal(folder.path()), HasSubstr(name));
    fs::create_directory(path / name);
    EXPECT_THAT(load_refusal(folder.path()), HasSubstr(name));
    fs::remove(path / name);
    write_test_file(path / name, good);
  }
}

TEST(Checkpoint, WhenTheNewestIsDamagedAnIntactOneIsNamed) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const int step : {1, 2, 3})
    save_checkpoint(folder.path(), model, make_checkpoint(model, step), 3);
  fs::resize_file(folder / "step-000000003/layer-00004-fc.safetensors", 100);
  EXPECT_THAT(load_refusal(folder.path()),
              AllOf(HasSubstr("layer-00004-fc.safetensors"), HasSubstr("truncated"),
                    HasSubstr("intact"), HasSubstr("step-000000002")));
  fs::resize_file(folder / "step-000000002/weights.pt", 100);
  EXPECT_THAT(load_refusal(folder.path()), HasSubstr("step-000000001"));
  fs::remove(folder / "step-000000001/manifest.json");
  EXPECT_THAT(load_refusal(folder.path()), HasSubstr("no other checkpoint there can be used"));
}

TEST(Checkpoint, WhenLatestNamesAMissingFolderAnIntactOneIsNamed) {
  const TestFolder folder;
  const model::Model model = make_model();
  for (const int step : {1, 2}) save_checkpoint(folder.path(), model, make_checkpoint(model, step));
  fs::remove_all(folder / "step-000000002");
  EXPECT_THAT(
      load_refusal(folder.path()),
      AllOf(HasSubstr("latest"), HasSubstr("step-000000002"), HasSubstr("intact checkpoint is"),
            HasSubstr((folder / "step-000000001").string() + "': resume from that folder")));
  for (const char* text : {"", "\n", "../../etc\n", "step-000000001", "step-000000001\n",
                           "step-000000001\ncrc32 00000000\n"}) {
    write_test_file(folder / "latest", text);
    EXPECT_TRUE(has_checkpoint(folder.path()));
    EXPECT_THAT(load_refusal(folder.path()),
                AllOf(HasSubstr("latest"), HasSubstr("step-000000001")));
  }
}

/// One number per row or column, or none: what optimisers keep. Other shapes are a damaged file's.
TEST(Checkpoint, StatesMayBeSmallerThanTheirWeights) {
  const TestFolder folder;
  const model::Model model = make_model();
  Checkpoint checkpoint = make_checkpoint(model, 3);
  const size_t last = checkpoint.layers.size() - 1;  // a weight of [3, 32] and a bias
  const auto saved_with = [&](at::IntArrayRef shape, int64_t step) {
    checkpoint.layers[last].optimizer.begin()->second[0] = torch::randn(shape);
    checkpoint.step = step;
    save_checkpoint(folder.path(), model, checkpoint);
  };
  int64_t step = 10;
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{3, 1}, {1, 32}, {0}, {3, 32}}) {
    saved_with(shape, ++step);
    const Checkpoint loaded = load_checkpoint(folder.path(), model);
    const at::Tensor& found = loaded.layers[last].optimizer.begin()->second[0];
    EXPECT_TRUE(found.equal(checkpoint.layers[last].optimizer.begin()->second[0]));
  }
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{32, 3}, {1, 1}, {3}, {96}}) {
    saved_with(shape, ++step);
    EXPECT_THAT(load_refusal(folder.path()), HasSubstr("expected F32 of shape [3, 32]"));
  }
}

TEST(Checkpoint, AMissingCheckpointIsReported) {
  const TestFolder folder;
  EXPECT_THAT(load_refusal(folder.path()), HasSubstr("there is no checkpoint"));
  EXPECT_THAT(load_refusal(folder / "missing"), HasSubstr("missing"));
  EXPECT_FALSE(has_checkpoint(folder / "missing"));
}

TEST(Checkpoint, AnotherModelIsRefusedNamingTheFirstLayerThatDiffers) {
  const TestFolder folder;
  const model::Model model = make_model();
  save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  EXPECT_THAT(load_refusal(folder.path(), make_model(3, "head")),
              AllOf(HasSubstr("layer 4"), HasSubstr("'head'"), HasSubstr("'fc'")));
  EXPECT_THAT(load_refusal(folder.path(), make_model(5)),
              AllOf(HasSubstr("fc"), HasSubstr("expected F32 of shape [5, 32]"),
                    HasSubstr("found F32 of shape [3, 32]")));
  EXPECT_THAT(load_refusal(folder.path(), make_model(3, "fc", "other")),
              AllOf(HasSubstr("'tiny'"), HasSubstr("'other'")));
  model::ModelBuilder net("tiny");
  const model::Model shorter = net.build(net.conv2d(
      net.input({1, 4, 4}), {.channels = 2, .kernel = 3, .padding = 1, .name = "conv1"}));
  EXPECT_THAT(load_refusal(folder.path(), shorter),
              AllOf(HasSubstr("layer 1"), HasSubstr("no more layers"), HasSubstr("'norm'")));
}

TEST(Checkpoint, OtherConnectionsOfTheSameLayersAreRefused) {
  const auto build = [](bool crossed) {
    model::ModelBuilder net("net");
    const model::Value x = net.input({4});
    const model::Value a = net.linear(x, {.features = 4, .name = "a"});
    const model::Value b = net.linear(crossed ? x : a, {.features = 4, .name = "b"});
    return net.build(net.add(a, b, "sum"));
  };
  const TestFolder folder;
  save_checkpoint(folder.path(), build(false), make_checkpoint(build(false), 3));
  EXPECT_THAT(load_refusal(folder.path(), build(true)), HasSubstr("other connections"));
}

TEST(Checkpoint, AForgedManifestIsRefused) {
  const model::Model model = make_model();
  const std::vector<std::pair<std::string, std::string>> forgeries{
      {"\"layer-00000-conv1.safetensors\"", "\"../../../etc/passwd\""},
      {"\"layer-00000-conv1.safetensors\"", "\"layer-00001-norm.safetensors\""},
      {"\"name\": \"conv1\"", "\"name\": \"../conv1\""},
      {"\"weights.pt\"", "\"/etc/passwd\""},
      {"\"version\": 1", "\"version\": 2"},
      {"penstock-checkpoint", "penstock-plan"},
      {"\"epoch\": 2", "\"epoch\": -2"},
      {"\"epoch\": 2", "\"epoch\": 9223372036854775807"},
      {"\"next_mini_batch\": 17", "\"next_mini_batch\": 32"},  // an epoch has 0 to 31
      {"\"next_mini_batch\": 17", "\"next_mini_batch\": 9223372036854775807"},
      {"\"mini_batch_size\": 64", "\"mini_batch_size\": 0"},
      {"\"step\": 3", "\"step\": 1e300"},
      {"\"step\": 3", "\"step\": 9223372036854775807"},
      {"\"shuffle\": true", "\"shuffle\": 1"},
      {"\"seed\": \"18446744073709551614\"", "\"seed\": \"18446744073709551616\""},
      {"\"exp_avg\"", "\"momentum\""},
      {"\"bytes\": ", "\"bytes\": 9"},
      {"\"crc32\": ", "\"crc32\": 99999999999"},
      {"\"mini_batch_size\"", "\"size\""},
  };
  for (const auto& [from, to] : forgeries) {
    const TestFolder folder;
    const fs::path path = save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
    forge_manifest(path / "manifest.json", from, to);
    const std::string message = load_refusal(folder.path());
    EXPECT_THAT(message, testing::Not(HasSubstr("manifest that ends"))) << to;
    EXPECT_FALSE(message.empty()) << to;
  }
  const TestFolder folder;
  const fs::path path = save_checkpoint(folder.path(), model, make_checkpoint(model, 3));
  forge_manifest(path / "manifest.json", "\"version\": 1", "\"version\": 2");
  EXPECT_THAT(load_refusal(folder.path()), HasSubstr("2"));
}

TEST(Checkpoint, AnUnusableFolderIsAConfigError) {
  const TestFolder folder;
  const model::Model model = make_model();
  const Checkpoint checkpoint = make_checkpoint(model, 1);
  write_test_file(folder / "file", "x");
  EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(folder / "file", model, checkpoint); }),
              HasSubstr((folder / "file").string()));
  EXPECT_THAT(
      message_of<ConfigError>([&] { save_checkpoint(folder / "file/deeper", model, checkpoint); }),
      HasSubstr("deeper"));
  EXPECT_THAT(
      message_of<ConfigError>([&] { save_checkpoint("/proc/penstock", model, checkpoint); }),
      HasSubstr("/proc/penstock"));
  EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint("/proc", model, checkpoint); }),
              HasSubstr("cannot write"));
  EXPECT_THROW(save_checkpoint(folder.path(), model, checkpoint, 0), ConfigError);
  if (::geteuid() == 0) return;  // root may write anywhere
  fs::create_directory(folder / "locked");
  fs::permissions(folder / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(
      message_of<ConfigError>([&] { save_checkpoint(folder / "locked", model, checkpoint); }),
      HasSubstr("locked"));
}

TEST(Checkpoint, TwoRunsCannotSaveIntoOneFolderAtOnce) {
  const TestFolder folder;
  const model::Model model = make_model();
  const SaveLock lock(folder.path());
  EXPECT_THAT(message_of<RuntimeError>(
                  [&] { save_checkpoint(folder.path(), model, make_checkpoint(model, 1)); }),
              HasSubstr("another run"));
}

TEST(Checkpoint, AFolderBelongsToOneRunWhichSavesIntoIt) {
  const TestFolder folder;
  const model::Model model = make_model();
  {
    const RunLock lock(folder / "run");
    EXPECT_THAT(message_of<ConfigError>([&] { RunLock other(folder / "run"); }),
                HasSubstr("another run is saving into"));
    save_checkpoint(folder / "run", model, make_checkpoint(model, 1));
    const SaveLock save(folder / "run");
    EXPECT_THROW(save_checkpoint(folder / "run", model, make_checkpoint(model, 2)), RuntimeError);
  }
  EXPECT_EQ(names_in(folder / "run"), (std::vector<std::string>{"latest", "step-000000001"}));
  const RunLock next(folder / "run");
}

TEST(Checkpoint, AFolderThatCannotBeUsedIsRefusedBeforeTheRun) {
  const TestFolder folder;
  write_test_file(folder / "file", "");
  for (const fs::path& path : {folder / "file", folder / std::string(300, 'x'), fs::path("/proc/x"),
                               fs::path("/proc"), fs::path("/dev/full")})
    EXPECT_THROW(RunLock lock(path), ConfigError) << path;
}

TEST(Checkpoint, AFullDiskIsARuntimeErrorAndKeepsOldCheckpoints) {
  const TestFolder folder;
  const model::Model model = make_model();
  const Checkpoint first = make_checkpoint(model, 1);
  save_checkpoint(folder.path(), model, first);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  // The first limit stops in a layer, the second in weights.pt, which is the largest file.
  for (const rlim_t bytes : {rlim_t{300}, rlim_t{2000}}) {
    const rlimit small{bytes, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string message = message_of<RuntimeError>(
        [&] { save_checkpoint(folder.path(), model, make_checkpoint(model, 2)); });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_THAT(message, HasSubstr(bytes == 300 ? "conv1" : "weights.pt"));
    EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("latest", "step-000000001"));
    expect_same(load_checkpoint(folder.path(), model), first);
  }
  ::signal(SIGXFSZ, old_handler);
}

TEST(Checkpoint, AKillAtAnyMomentLeavesAUsableCheckpoint) {
  const TestFolder folder;
  const model::Model model = make_model();
  std::vector<Checkpoint> checkpoints;
  for (int step = 0; step < 3; ++step) checkpoints.push_back(make_checkpoint(model, step, step));
  save_checkpoint(folder.path(), model, checkpoints[0]);
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 0;; ++i)
        save_checkpoint(folder.path(), model, checkpoints[static_cast<size_t>(i % 3)], 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + 3 * round));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const Checkpoint loaded = load_checkpoint(folder.path(), model);
    expect_same(loaded, checkpoints.at(static_cast<size_t>(loaded.step)));
  }
}

TEST(Checkpoint, HoldsThePlanAndWhatItWasMadeFor) {
  const TestFolder folder;
  const model::Model model = make_model();
  Checkpoint checkpoint = make_checkpoint(model, 3);
  save_checkpoint(folder.path(), model, checkpoint);
  EXPECT_TRUE(newest_plan(folder.path(), model).file.empty());
  checkpoint.step = 4;
  checkpoint.plan = "the plan";
  checkpoint.plan_request = "--workers 2";
  const fs::path saved = save_checkpoint(folder.path(), model, checkpoint);
  const SavedPlan plan = newest_plan(folder.path(), model);
  EXPECT_EQ(plan.file, saved / "plan.json");
  EXPECT_EQ(plan.text, "the plan");
  EXPECT_EQ(plan.request, "--workers 2");
  EXPECT_EQ(load_checkpoint(folder.path(), model).plan_request, "--workers 2");

  write_test_file(saved / "plan.json", "the plam");
  const auto damaged = AllOf(HasSubstr("plan.json: the file is damaged: expected CRC-32"),
                             HasSubstr("an intact checkpoint is"), HasSubstr("step-000000003"));
  EXPECT_THAT(message_of<CheckpointError>([&] { newest_plan(folder.path(), model); }), damaged);
  EXPECT_THAT(message_of<CheckpointError>([&] { load_checkpoint(folder.path(), model); }), damaged);
}

}  // namespace
}  // namespace penstock::train
