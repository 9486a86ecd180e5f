// live_page_demo MODE [SECONDS]: serves the page of an invented stream and prints its address.
// MODE: running; predict (the next frame); ended; bare (a state without anything); odd (values of
// wrong types and text that looks like markup); leaving (ends when the state was asked for ten
// times). Ends after SECONDS, 60 by default.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "penstock/live/live_server.h"

namespace {

using penstock::live::Picture;
using Json = nlohmann::json;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kFramePeriodNs = 33 * kMs;
constexpr int kStages = 4;
constexpr int64_t kForwardNs[kStages] = {8 * kMs, 9 * kMs, 7 * kMs, 6 * kMs};
constexpr int64_t kBackwardNs[kStages] = {15 * kMs, 17 * kMs, 13 * kMs, 14 * kMs};

// Everything is a function of the time; it begins at 90 s, so that there is a history.
class InventedStream : public penstock::live::LiveSource {
 public:
  explicit InventedStream(std::string mode) : mode_(std::move(mode)) {}

  int times_asked() const { return times_asked_; }
  std::string state() const override {
    ++times_asked_;
    if (mode_ == "bare") return "{}";
    if (mode_ == "odd") return odd();
    const int64_t now = now_ns();
    const int64_t frames = now / kFramePeriodNs, dropped = frames / 53;
    Json state{{"title", "Autoencoder on a moving digit"},
               {"source", "moving MNIST digits, 64x64 at 30/s"},
               {"plan", "4 stages on 4 threads"},
               {"elapsed_ns", now},
               {"frames_in", frames},
               {"processed", frames - dropped},
               {"dropped", dropped},
               {"fps", fps(now)},
               {"wanted_fps", 30},
               {"latency_p50_ns", latency(now)},
               {"latency_p99_ns", latency(now) * 3 / 2},
               {"deadline_misses", frames / 400},
               {"loss", loss(now)},
               {"task", "pixels"},
               {"accuracy", 0.875},
               {"rebuilt_loss", 0.25},
               {"classes", Json::array({Json{{"name", "0, background"}, {"colour", "#282828"}},
                                        Json{{"name", "1"}, {"colour", "#e69f00"}}})},
               {"ended", mode_ == "ended"},
               {"message", mode_ == "ended" ? "3000 frames were asked for" : ""}};
    const char* layers[] = {"conv1 to pool1", "conv2 to pool2", "linear1 to linear3",
                            "deconv1 to deconv2"};
    for (int s = 0; s < kStages; ++s) {
      state["stages"].push_back({{"name", "stage " + std::to_string(s)},
                                 {"layers", layers[s]},
                                 {"busy", static_cast<double>(kForwardNs[s] + kBackwardNs[s]) /
                                              static_cast<double>(kFramePeriodNs)},
                                 {"forward_ns", kForwardNs[s]},
                                 {"backward_ns", kBackwardNs[s]}});
    }
    if (mode_ == "predict") {
      state["task"] = "predict";
      state["copying_loss"] = 0.125;
      state["accuracy"] = state["rebuilt_loss"] = nullptr;
    }
    for (int64_t time = 500 * kMs; time <= now; time += std::max(500 * kMs, now / 300))
      state["history"].push_back({{"time_ns", time},
                                  {"fps", fps(time)},
                                  {"loss", loss(time)},
                                  {"copying_loss", 0.125},
                                  {"latency_p50_ns", latency(time)},
                                  {"latency_p99_ns", latency(time) * 3 / 2},
                                  {"dropped", time / kFramePeriodNs / 53}});
    state["timeline"] = {{"now_ns", now}, {"workers", workers(now)}};
    return state.dump();
  }
  Picture input() const override { return picture(1); }
  Picture output() const override { return picture(3); }

 private:
  using Clock = std::chrono::steady_clock;

  int64_t now_ns() const {
    return 90'000 * kMs +
           (mode_ == "ended" ? 0 : std::chrono::nanoseconds(Clock::now() - begin_).count());
  }
  static double fps(int64_t time) {
    return 29 + 0.8 * std::sin(static_cast<double>(time) / 3e9) - (time / 7'000'000'000 % 5 == 2);
  }
  static double loss(int64_t time) {
    const double seconds = static_cast<double>(time) / 1e9;
    return 0.012 + 0.3 * std::exp(-seconds / 18) * (1 + 0.15 * std::sin(3.7 * seconds));
  }
  static int64_t latency(int64_t time) {
    return 92 * kMs + static_cast<int64_t>(6e6 * std::sin(static_cast<double>(time) / 2.3e9));
  }

  // A frame enters each stage a period after the stage before, then goes back.
  static Json workers(int64_t now) {
    Json all = Json::array();
    for (int s = 0; s < kStages; ++s) {
      Json lane = Json::array();
      const auto add = [&](const char* op, int64_t frame, int64_t start, int64_t duration) {
        if (start + duration > now || start + duration < now - 1'200 * kMs) return;
        lane.push_back(
            {{"op", op}, {"frame", frame}, {"start_ns", start}, {"end_ns", start + duration}});
      };
      for (int64_t slot = now / kFramePeriodNs - 40; slot <= now / kFramePeriodNs; ++slot) {
        const int64_t forward = slot - s, backward = slot - (2 * kStages - 1 - s);
        const int64_t start = slot * kFramePeriodNs;
        if (forward % 53 != 0) {
          add("F", forward, start, kForwardNs[s]);
          if (s + 1 < kStages) add("SEND_F", forward, start + kForwardNs[s] + 1, kMs / 2);
        }
        if (backward % 53 != 0) add("B", backward, start + 12 * kMs, kBackwardNs[s]);
      }
      all.push_back(lane);
    }
    return all;
  }

  // A soft disc on its way.
  Picture picture(int channels) const {
    if (mode_ == "bare") return {};
    const int size = 48;
    Picture picture{.width = size,
                    .height = size,
                    .channels = channels,
                    .pixels = {},
                    .frame = now_ns() / kFramePeriodNs - (channels == 3 ? 7 : 0)};
    const double angle = static_cast<double>(picture.frame) / 20;
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) {
        const double dx = x - 24 - 12 * std::cos(angle), dy = y - 24 - 12 * std::sin(angle);
        const double light = 255 / (1 + std::exp((std::hypot(dx, dy) - 8) * (4.0 - channels)));
        for (int c = 0; c < channels; ++c)
          picture.pixels.push_back(static_cast<uint8_t>(light * (c == 2 ? 0.6 : 1)));
      }
    }
    return picture;
  }

  static std::string odd() {
    return R"({"title": "<img src=x onerror=alert(1)>", "source": 3, "elapsed_ns": "x",
      "frames_in": null, "processed": -1, "fps": "fast", "loss": null, "wanted_fps": null,
      "classes": [null, {"name": "<b>", "colour": 7}], "accuracy": "x",
      "stages": [null, {"name": "<b>s</b>", "busy": 7}, {}], "history": [null, {"time_ns": 1},
      {"time_ns": 2, "loss": 1e300, "fps": null}, 3], "message": "<script>alert(1)</script>",
      "timeline": {"now_ns": 5, "workers": [null, [null, 3, {"op": 3}, {"op": null, "frame": "x",
      "start_ns": 1, "end_ns": 4}], [{"start_ns": 1}]]}})";
  }

  const std::string mode_;
  mutable std::atomic<int> times_asked_ = 0;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "running";
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(argc > 2 ? std::atoi(argv[2]) : 60);
  const InventedStream stream(mode);
  const penstock::live::LiveServer server(stream);
  std::cout << server.url() << std::endl;
  while (std::chrono::steady_clock::now() < end &&
         !(mode == "leaving" && stream.times_asked() >= 10))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}
