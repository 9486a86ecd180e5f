// Frames as tensors and tensors as pictures. Numbers are brightnesses from -0.5 (0) to 0.5 (255).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "penstock/frames/frame.h"

namespace penstock::stream {

/// Writes the frame's pixels into `tensor`, [1, channels, height, width] float32, which is made
/// anew unless it has this shape and nobody else holds it.
void to_tensor(const frames::Frame& frame, at::Tensor& tensor);

/// Writes the labels of the frame's pixels into `tensor`, [1, height, width] int64,
/// model::kNoTarget where there is none; it is made anew as above. False, and nothing is written,
/// when the frame has none at all. Throws RuntimeError for a class of `classes` or more.
bool to_targets(const frames::Frame& frame, int classes, at::Tensor& tensor);

/// A picture for people: [height, width, channels] bytes of the channels from `first` on of the
/// first sample of [batch, numbers, height, width].
std::vector<uint8_t> to_pixels(const at::Tensor& tensor, int64_t first, int channels);

}  // namespace penstock::stream
