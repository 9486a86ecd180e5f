// For the tests of streams: small scenes, models and plans.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "penstock/frames/frame_queue.h"
#include "penstock/frames/sources/generated_source.h"
#include "penstock/model/zoo.h"
#include "penstock/stream/online_loop.h"

namespace penstock::stream::testing {

inline constexpr frames::FrameSize kSmall = {16, 12, frames::kRgb};
inline constexpr int kClasses = 4;

/// Every frame is learned from: the source waits for the pipeline.
inline std::unique_ptr<frames::FrameQueue> generated(int64_t frames, int label_every = 1) {
  return std::make_unique<frames::FrameQueue>(
      std::make_unique<frames::GeneratedSource>(frames::GeneratedOptions{
          .size = kSmall, .classes = kClasses, .label_every = label_every, .frames = frames}),
      frames::QueueOptions{.waits_when_full = true});
}

inline model::Model model_for(frames::Task task, int64_t depth = 4) {
  return model::make_model(
      {.name = "partime",
       .input_shape = {kSmall.channels, kSmall.height, kSmall.width},
       .classes = frames::outputs_of(task, {.channels = kSmall.channels, .classes = kClasses}),
       .width = 6,
       .depth = depth,
       .kernel = 3,
       .per_pixel = is_per_pixel(task)});
}

/// So many stages of nearly equal numbers of layers.
inline plan::Plan plan_of(const model::Model& model, int stages, const std::string& weights = "") {
  plan::Plan plan;
  plan.model = model.name();
  plan.strategy = stages == 1 ? plan::Strategy::Serial : plan::Strategy::Online;
  plan.weights = plan::parse_weight_policy(stages == 1       ? "flush"
                                           : weights.empty() ? "current"
                                                             : weights);
  const int layers = model.graph().num_layers();
  for (int s = 0; s < stages; ++s) {
    plan::Stage stage;
    for (int l = layers * s / stages; l < layers * (s + 1) / stages; ++l)
      stage.layers.push_back(model.graph().layer(LayerId{l}).name);
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

struct SavedStream {
  StreamSummary summary;
  std::optional<StreamState> saved;  ///< after more than 20 frames
};

/// A stream of so many frames, of which a state is saved while it runs.
inline SavedStream run_and_save(const model::Model& model, int64_t frames, StreamOptions options) {
  SavedStream result;
  OnlineLoop* running = nullptr;
  options.between_looks = std::chrono::milliseconds(10);
  options.on_look = [&](const StreamLook& look) {
    if (look.whole.processed > 20 && !result.saved) running->save_soon();
  };
  options.on_state = [&](const StreamState& state) { result.saved = state; };
  const auto queue = generated(frames);
  OnlineLoop loop(model, *queue, std::move(options));
  running = &loop;
  result.summary = loop.run();
  return result;
}

/// The largest difference of two states' weights.
inline double difference(const StreamState& a, const StreamState& b) {
  double worst = 0;
  EXPECT_EQ(a.layers.size(), b.layers.size());
  for (size_t l = 0; l < a.layers.size(); ++l) {
    EXPECT_EQ(a.layers[l].weights.size(), b.layers[l].weights.size());
    for (size_t w = 0; w < a.layers[l].weights.size(); ++w)
      worst = std::max(
          worst, (a.layers[l].weights[w] - b.layers[l].weights[w]).abs().max().item<double>());
  }
  return worst;
}

}  // namespace penstock::stream::testing
