// What the live page shows, as a running stream answers it: numbers, stages and timeline as JSON,
// and the newest input and output as pictures. The program that runs the stream implements it.
//
//   class OnlineStream : public LiveSource { ... };
//   LiveServer server(stream);            // asks while somebody looks at the page
//   log_info("the stream is shown at " + server.url());
//
// Thread-safety: all three functions are called from the server's thread while the stream runs.
// They should copy what they need under a lock and return within milliseconds; meanwhile no other
// request is answered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::live {

/// Pixels row by row from the top, channels together (RGBRGB...), 0 to 255. Empty (width 0) while
/// there is none.
struct Picture {
  int width = 0;
  int height = 0;
  int channels = 0;             // 1 (grey) or 3 (RGB)
  std::vector<uint8_t> pixels;  // [height, width, channels]
  int64_t frame = -1;           // the frame's number; -1 if unknown
};

class LiveSource {
 public:
  virtual ~LiveSource() = default;

  /// One JSON object. All times are in ns since the stream began; every key may be missing or null,
  /// and is then not shown:
  ///
  ///     {"title": "autoencoder", "source": "camera 0, 64x64 at 30/s", "plan": "4 stages",
  ///      "elapsed_ns": 61000000000,
  ///      "frames_in": 1830, "processed": 1795, "dropped": 35,
  ///      "fps": 29.4,                     frames processed per second, recently
  ///      "wanted_fps": 30,                null if the source sets no pace
  ///      "latency_p50_ns": 41000000, "latency_p99_ns": 66000000,  from a frame's arrival to its
  ///                                       output, recently
  ///      "deadline_misses": 3, "loss": 0.0123,
  ///      "task": "pixels", "accuracy": 0.93,  of recent labels; null where there are none
  ///      "rebuilt_loss": 0.02,                of recent frames without labels
  ///      "copying_loss": 0.02,                of the last frame as the prediction of the next
  ///      "classes": [{"name": "0, background", "colour": "#282828"}],  of the output's pixels
  ///      "ended": false, "message": "",   why it ended
  ///      "stages": [{"name": "stage 0", "layers": "conv1 to pool2", "busy": 0.83,
  ///                  "forward_ns": 5200000, "backward_ns": 9800000}],
  ///      "history": [{"time_ns": 500000000, "fps": 28.1, "loss": 0.4, "copying_loss": 0.5,
  ///                   "latency_p50_ns": 4.1e7, "latency_p99_ns": 6.6e7, "dropped": 2}],
  ///      "timeline": {"now_ns": 61000000000, "workers": [
  ///          [{"op": "F", "frame": 1802, "start_ns": 60990000000, "end_ns": 60995000000}]]}}
  ///
  /// busy: the share of recent time, 0 to 1. history: oldest first, a few hundred points; dropped
  /// counts from the beginning. timeline: what each worker did in the last second or so, oldest
  /// first, up to some thousand actions in all (the newest); op is a name of schedule/action.h (F,
  /// B, SEND_F, ...), now_ns the time at which it was read.
  virtual std::string state() const = 0;

  /// The newest frame that came in, and what the network made of its newest frame.
  virtual Picture input() const = 0;
  virtual Picture output() const = 0;
};

}  // namespace penstock::live
