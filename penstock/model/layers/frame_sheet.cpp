// Frames of a clip as one picture, one below the other, so that layers for pictures read them, and
// back.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "penstock/model/layers/builtin.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/shapes.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model::detail {
namespace {

/// A copy, whose gradient is copied back.
profile::LayerWork moved(const std::vector<Shape>& outputs, int64_t batch) {
  const int64_t numbers = batch_numbers(outputs, batch);
  return {.forward = {copy(numbers)},
          .backward_weights = {},
          .backward_inputs = {copy(numbers)},
          .stash_bytes = tensor_bytes(numbers),
          .saves_inputs = false,
          .saves_outputs = false};
}

/// [frames, channels * side * side] to [channels, frames * side, side].
class FramesToSheet final : public BuiltinLayer {
 public:
  explicit FramesToSheet(int64_t channels) : channels_(channels) {}

  std::string kind() const override { return "frames_to_sheet"; }
  std::string code() const override { return fmt::format("frames_to_sheet {}", channels_); }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    expect_inputs(inputs, 1);
    const int64_t side = inputs[0].size() == 2 ? side_of(inputs[0][1]) : 0;
    if (side == 0)
      throw ConfigError(
          fmt::format("expected [frames, numbers], each frame {} channels of a square, found {}",
                      channels_, shape_text(inputs[0])));
    return {{channels_, saturating_mul(inputs[0][0], side), side}};
  }
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    return moved(outputs, batch);
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const at::Tensor& x = inputs[0];
    const int64_t side = side_of(x.size(2));
    return {x.reshape({x.size(0), x.size(1), channels_, side, side})
                .transpose(1, 2)
                .reshape({x.size(0), channels_, x.size(1) * side, side})
                .contiguous()};
  }

 private:
  /// 0: they are no square.
  int64_t side_of(int64_t numbers) const {
    for (int64_t side = 1; side <= kMaxExtent && side * side <= numbers; ++side) {
      if (side * side * channels_ == numbers) return side;
    }
    return 0;
  }

  int64_t channels_;
};

/// [channels, frames * height, width] to [frames, channels * height * width].
class SheetToFrames final : public BuiltinLayer {
 public:
  explicit SheetToFrames(int64_t frames) : frames_(frames) {}

  std::string kind() const override { return "sheet_to_frames"; }
  std::string code() const override { return fmt::format("sheet_to_frames {}", frames_); }
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    const Shape& in = expect_image(inputs);
    if (in[1] % frames_ != 0)
      throw ConfigError(
          fmt::format("expected {} frames one below the other, found {} rows", frames_, in[1]));
    return {{frames_, checked_elements(in, "input") / frames_}};
  }
  profile::LayerWork work(const std::vector<Shape>&, const std::vector<Shape>& outputs,
                          int64_t batch) const override {
    return moved(outputs, batch);
  }
  Tensors forward(TensorSpan, MutableTensorSpan, TensorSpan inputs,
                  const ForwardContext&) const override {
    const at::Tensor& x = inputs[0];
    const int64_t height = x.size(2) / frames_;
    return {x.reshape({x.size(0), x.size(1), frames_, height, x.size(3)})
                .transpose(1, 2)
                .reshape({x.size(0), frames_, x.size(1) * height * x.size(3)})
                .contiguous()};
  }

 private:
  int64_t frames_;
};

}  // namespace

LayerPtr make_frames_to_sheet(int64_t channels) {
  check_range(channels, 1, kMaxExtent, "channels");
  return std::make_shared<FramesToSheet>(channels);
}

LayerPtr make_sheet_to_frames(int64_t frames) {
  check_range(frames, 1, kMaxExtent, "frames");
  return std::make_shared<SheetToFrames>(frames);
}

}  // namespace penstock::model::detail
