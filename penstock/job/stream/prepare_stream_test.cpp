// From a request to a stream that is ready to begin, as a program that uses the library does.
#include "penstock/job/stream/prepare_stream.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "penstock/frames/open_source.h"
#include "penstock/job/stream/stream_weights.h"
#include "penstock/plan/boundaries.h"
#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"

namespace penstock::job {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<frames::FrameSource> scene() {
  return frames::open_source("generated", {.width = 16, .height = 12, .seed = 1});
}

options::StreamRequest stream_request() {
  options::StreamRequest request;
  request.model.width = 2;
  request.model.depth = 2;
  request.plan.workers = 2;
  request.plan.replan_margin = 0;
  return request;
}

TEST(PrepareStream, LabelledFramesAreClassifiedPixelByPixel) {
  const StreamSubject subject = stream_subject(stream_request(), *scene());
  EXPECT_EQ(subject.task, frames::Task::Pixels);
  EXPECT_EQ(subject.size.width, 16);
  EXPECT_GT(subject.classes, 0);
  EXPECT_EQ(subject.frames_per_second, 0);
}

TEST(PrepareStream, AModelIsMeasuredAndCutAndTheListenerHearsOfIt) {
  const options::StreamRequest request = stream_request();
  const StreamSubject subject = stream_subject(request, *scene());
  std::string said;
  const auto prepared = prepare_stream(
      request, subject, {.listener = {.say = [&](const std::string& text) { said += text; }}});
  ASSERT_TRUE(prepared.has_value());
  EXPECT_GE(prepared->plan.stages.size(), 1U);
  EXPECT_LE(prepared->plan.stages.size(), 2U);
  EXPECT_TRUE(prepared->profile.has_value());
  EXPECT_EQ(prepared->search.workers, 2);
  EXPECT_THAT(said, HasSubstr("measuring the"));
  EXPECT_THAT(said, HasSubstr("frames/s predicted"));
}

TEST(PrepareStream, NothingIsPreparedWhereTheUserHasStopped) {
  const options::StreamRequest request = stream_request();
  const StreamSubject subject = stream_subject(request, *scene());
  const std::atomic<bool> stop{true};
  EXPECT_FALSE(prepare_stream(request, subject, {.stop = &stop}).has_value());
}

TEST(PrepareStream, AProfileOfAnotherTaskIsRefused) {
  const std::string path = ::testing::TempDir() + "penstock-stream-profile.json";
  options::StreamRequest request = stream_request();
  const StreamSubject pixels = stream_subject(request, *scene());
  const auto prepared = prepare_stream(request, pixels, {});
  ASSERT_TRUE(prepared && prepared->profile);
  write_file_atomic(path, profile::to_json(*prepared->profile));
  request.plan.profile = path;
  EXPECT_EQ(prepare_stream(request, pixels, {})->plan.model, "partime");
  request.task = frames::Task::Reconstruct;
  const StreamSubject rebuilt = stream_subject(request, *scene());
  try {
    prepare_stream(request, rebuilt, {});
    FAIL() << "the profile was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("of another task"));
  }
}

TEST(PrepareStream, APlanWhoseMessagesAreCodedIsRefused) {
  const std::string path = ::testing::TempDir() + "penstock-stream-coded-plan.json";
  options::StreamRequest request = stream_request();
  const StreamSubject subject = stream_subject(request, *scene());
  plan::Plan plan = prepare_stream(request, subject, {})->plan;
  plan.links.clear();
  plan::Stage& first = plan.stages.front();
  if (plan.stages.size() == 1) {
    plan.stages.push_back({.layers = {first.layers.back()}, .first_worker = 1});
    first.layers.pop_back();
  }
  plan.links = {{StageId{0}, StageId{1}}};
  request.plan.file = path;
  write_file_atomic(path, plan::to_json(plan));
  EXPECT_EQ(prepare_stream(request, subject, {})->plan.stages.size(), 2U);
  plan::set_boundaries(plan, plan::parse_boundary("int8"));
  write_file_atomic(path, plan::to_json(plan));
  try {
    prepare_stream(request, subject, {});
    FAIL() << "the plan was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has boundaries in int8"));
  }
}

TEST(PrepareStream, ATaskThatNeedsLabelsIsRefusedWithoutThem) {
  options::StreamRequest request = stream_request();
  request.task = frames::Task::Label;
  const auto source =
      frames::open_source("-", {.width = 16, .height = 12, .pixel = frames::PixelFormat::Rgb24});
  EXPECT_THROW(stream_subject(request, *source), ConfigError);
}

/// Weights of the model after so many frames, as a stream has them.
stream::StreamState state_of(const model::Model& model, const model::Optimizer& optimizer,
                             const plan::Plan& plan, int64_t steps) {
  stream::StreamState state{.steps = steps, .plan = plan};
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    runtime::LayerSnapshot layer;
    layer.weights = model.initial_weights(LayerId{l}, /*seed=*/1);
    layer.buffers = model.initial_buffers(LayerId{l});
    for (size_t s = 0; s < optimizer.state_names().size(); ++s) {
      model::Tensors& tensors = layer.optimizer_state.emplace_back();
      for (const at::Tensor& weight : layer.weights) tensors.push_back(at::zeros_like(weight));
    }
    state.layers.push_back(std::move(layer));
  }
  return state;
}

TEST(StreamWeights, KeepTheNamesOfTheClassesThatTheyCameWith) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "penstock-stream-classes";
  std::filesystem::remove_all(folder);
  options::StreamRequest request = stream_request();
  request.run.checkpoint = folder.string();
  const StreamSubject subject = stream_subject(request, *scene());
  const auto optimizer = model::make_optimizer(request.optimizer);
  const plan::Plan plan = prepare_stream(request, subject, {})->plan;
  StreamWeights(request, subject.model).save(state_of(subject.model, *optimizer, plan, 1));
  train::Checkpoint trained = train::load_checkpoint(folder, subject.model);
  EXPECT_TRUE(trained.classes.empty());
  trained.classes = {"sky", "road", "car"};
  trained.step = 2;
  train::save_checkpoint(folder, subject.model, trained);
  request.run.resume = true;
  {
    StreamWeights weights(request, subject.model);
    ASSERT_EQ(weights.load({})->steps, 2);
    weights.save(state_of(subject.model, *optimizer, plan, 3));
    EXPECT_EQ(weights.failure(), "");
  }
  const train::CheckpointPosition saved = train::newest_position(folder, subject.model);
  EXPECT_EQ(saved.step, 3);
  EXPECT_EQ(saved.classes, trained.classes);
  EXPECT_EQ(StreamWeights(request, subject.model, trained.classes).load({})->steps, 3);
  StreamWeights others(request, subject.model, {"bird", "car", "road"});
  EXPECT_THROW(others.load({}), ConfigError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock::job
