// The loss of a task, and what people want to see of it: the model's output as a picture, and how
// many labels it gets right.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/frames/task.h"
#include "penstock/model/loss.h"
#include "penstock/util/process/mutex.h"

namespace penstock::stream {

/// How well labelled frames were classified before the model learned from them.
struct Hits {
  int64_t hits = 0;
  int64_t labels = 0;  ///< pixels, or frames
};

/// The losses of some frames. A frame without a label has none under frames::Task::Label; under
/// frames::Task::Pixels it is rebuilt instead, which is another loss.
struct Losses {
  int64_t frames = 0;  ///< with the task's own loss
  double sum = 0;      ///< over them
  int64_t rebuilt = 0;
  double rebuilt_sum = 0;
  /// Under frames::Task::Predict on a CPU: what the last frame has as a prediction.
  int64_t copied = 0;
  double copied_sum = 0;
  Hits hits = {};

  double mean() const { return frames > 0 ? sum / static_cast<double>(frames) : 0; }
  double rebuilt_mean() const {
    return rebuilt > 0 ? rebuilt_sum / static_cast<double>(rebuilt) : 0;
  }
  double copied_mean() const { return copied > 0 ? copied_sum / static_cast<double>(copied) : 0; }
  Losses& operator+=(const Losses& more);
  Losses& operator-=(const Losses& fewer);
};

/// What the model made of one frame before it learned from it.
struct FrameResult {
  int64_t frame = -1;
  Losses losses = {};
  /// Of each class: how likely it is under frames::Task::Label, its share of the pixels under
  /// frames::Task::Pixels; empty otherwise.
  std::vector<float> classes = {};
  std::optional<int> label = {};  ///< the frame's true class, where it has one
};

/// Red, green and blue of a class in pictures: 0 is dark grey, the others have hues of their own.
std::array<uint8_t, 3> class_colour(int cls);

/// Thread-safe; the loss is made and taken by the worker of the last stage, in the order of the
/// frames. On a GPU its numbers come later.
class FrameLoss {
 public:
  /// `on_frame` is called by take(); without it nothing is computed for it.
  FrameLoss(frames::Task task, const frames::FrameKind& kind,
            std::function<void(const FrameResult&)> on_frame = {})
      : task_(task), kind_(kind), on_frame_(std::move(on_frame)) {}

  /// runtime::PipelineOptions::loss. `output` as the task's model makes it, `targets` those of
  /// FrameFeed.
  model::LossResult operator()(const at::Tensor& output, const at::Tensor& targets,
                               const model::MiniBatchSize& mini_batch);

  /// Of the first frame that has not been taken, whose number is `frame`, with the numbers of its
  /// LossResult. Its picture can be seen from now on.
  Losses take(int64_t frame, double loss_sum, int64_t correct);
  /// Forgets frames that a run has not taken.
  void begin_run();
  /// The newest output as a picture, [height, width, channels]: the rebuilt or predicted frame, or
  /// the class of each pixel in its colour (class_colour()). Empty where there is none: before the
  /// first, and for classes of frames. Costs a copy of each output as soon as it has been asked
  /// for.
  struct Picture {
    int64_t frame = -1;
    std::vector<uint8_t> pixels = {};
    int64_t height = 0;
    int64_t width = 0;
    int channels = 0;
  };
  Picture newest() const;

 private:
  Picture show(const at::Tensor& output);
  std::vector<float> classes_of(const at::Tensor& output) const;
  Picture picture_of(const at::Tensor& output) const;
  /// The mean squared error of the frame before, which is kept; nothing for the first.
  std::optional<double> copying_error(const at::Tensor& frame);
  enum class Kind : uint8_t { None, Own, Rebuilt };
  /// What is known of a frame's loss before its numbers.
  struct Made {
    Kind kind = Kind::None;
    int64_t labels = 0;
    Picture picture = {};
    std::optional<double> copied = {};
    FrameResult result = {};  ///< its classes and label
  };
  const frames::Task task_;
  const frames::FrameKind kind_;
  const std::function<void(const FrameResult&)> on_frame_;
  at::Tensor last_frame_;  ///< under Task::Predict; only the last stage's worker uses it
  mutable Mutex mutex_;
  std::vector<Made> made_ GUARDED_BY(mutex_);  ///< ascending, until they are taken
  mutable bool is_watched_ GUARDED_BY(mutex_) = false;
  int64_t shown_ns_ GUARDED_BY(mutex_) = 0;
  Picture newest_ GUARDED_BY(mutex_);
};

}  // namespace penstock::stream
