// What is learned from a stream: the target of each frame, and how many numbers the model makes of
// it.
//
//   const Task task = parse_task("pixels");
//   outputs_of(task, {.channels = 3, .classes = 4}) == 7;   // 4 classes, and 3 channels to rebuild
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace penstock::frames {

enum class Task : uint8_t {
  Reconstruct,  ///< the frame itself; mean squared error
  Predict,      ///< the next frame, from the one before it; mean squared error
  /// The class of every pixel that has a label; cross-entropy. Frames without labels are
  /// reconstructed by further outputs.
  Pixels,
  Label,  ///< the class of the frame; cross-entropy. Frames without a label change nothing.
};

inline constexpr std::array kTasks = {Task::Reconstruct, Task::Predict, Task::Pixels, Task::Label};

/// "reconstruct", "predict", "pixels", "label".
std::string_view to_string(Task task);
/// Throws ConfigError listing the names.
Task parse_task(std::string_view name);

/// Whether the model makes numbers for every pixel, [numbers, height, width].
constexpr bool is_per_pixel(Task task) { return task != Task::Label; }
constexpr bool needs_labels(Task task) { return task == Task::Pixels || task == Task::Label; }

struct FrameKind {
  int channels = 3;
  int classes = 0;  ///< of the labels
};
/// Numbers that the model makes for each pixel, or for the frame.
int64_t outputs_of(Task task, const FrameKind& kind);

}  // namespace penstock::frames
