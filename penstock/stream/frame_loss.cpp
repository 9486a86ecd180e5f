#include "penstock/stream/frame_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "penstock/stream/frame_tensors.h"
#include "penstock/util/check.h"
#include "penstock/util/process/steady_ns.h"

namespace penstock::stream {

namespace {

/// A picture is made for people, who see no more than so many per second.
constexpr int64_t kBetweenPictures_ns = 50'000'000;

/// Nothing is learned: a loss of zero whose gradient is zero. On a GPU its numbers come in turn, as
/// those of other frames do.
model::LossResult no_loss(const at::Tensor& output) {
  model::LossResult result;
  result.scaled_loss = (output * 0).sum();
  if (!output.device().is_cpu())
    result.unread = at::zeros({2}, output.options().dtype(at::kDouble).requires_grad(false));
  return result;
}

}  // namespace

Losses& Losses::operator+=(const Losses& more) {
  frames += more.frames;
  sum += more.sum;
  rebuilt += more.rebuilt;
  rebuilt_sum += more.rebuilt_sum;
  copied += more.copied;
  copied_sum += more.copied_sum;
  hits.hits += more.hits.hits;
  hits.labels += more.hits.labels;
  return *this;
}

Losses& Losses::operator-=(const Losses& fewer) {
  return *this += {.frames = -fewer.frames,
                   .sum = -fewer.sum,
                   .rebuilt = -fewer.rebuilt,
                   .rebuilt_sum = -fewer.rebuilt_sum,
                   .copied = -fewer.copied,
                   .copied_sum = -fewer.copied_sum,
                   .hits = {.hits = -fewer.hits.hits, .labels = -fewer.hits.labels}};
}

model::LossResult FrameLoss::operator()(const at::Tensor& output, const at::Tensor& targets,
                                        const model::MiniBatchSize& mini_batch) {
  Made made{.picture = show(output)};
  if (on_frame_) made.result.classes = classes_of(output);
  model::LossResult result;
  if (!targets.defined()) {
    result = no_loss(output);
  } else if (!needs_labels(task_)) {
    made.kind = Kind::Own;
    result = model::mean_squared_error(output, targets, mini_batch);
    if (task_ == frames::Task::Predict) made.copied = copying_error(targets);
  } else if (task_ == frames::Task::Label) {
    made.kind = Kind::Own;
    made.labels = targets.size(0);
    if (on_frame_) made.result.label = static_cast<int>(targets.flatten()[0].item<int64_t>());
    result = model::cross_entropy(output, targets, mini_batch);
  } else if (targets.dim() == 4) {
    made.kind = Kind::Rebuilt;
    result = model::mean_squared_error(output.slice(1, kind_.classes), targets, mini_batch);
  } else {
    made.kind = Kind::Own;
    result = model::pixel_cross_entropy(output.slice(1, 0, kind_.classes), targets, mini_batch);
    made.labels = result.targets;
  }
  MutexLock lock(mutex_);
  made_.push_back(std::move(made));
  return result;
}

std::optional<double> FrameLoss::copying_error(const at::Tensor& frame) {
  if (!frame.device().is_cpu()) return std::nullopt;
  if (!last_frame_.defined() || last_frame_.sizes() != frame.sizes()) {
    last_frame_ = frame.clone();
    return std::nullopt;
  }
  const double error = at::mse_loss(last_frame_, frame).item<double>();
  last_frame_.copy_(frame);
  return error;
}

FrameLoss::Picture FrameLoss::show(const at::Tensor& output) {
  {
    MutexLock lock(mutex_);
    const int64_t now = steady_ns();
    if (!is_watched_ || task_ == frames::Task::Label || now - shown_ns_ < kBetweenPictures_ns)
      return {};
    shown_ns_ = now;
  }
  return picture_of(output.detach().to(at::kCPU));
}

std::vector<float> FrameLoss::classes_of(const at::Tensor& output) const {
  if (!needs_labels(task_)) return {};
  at::Tensor classes = output.detach().to(at::kCPU, at::kFloat);
  if (task_ == frames::Task::Label) {
    classes = classes.softmax(1).flatten();
  } else {
    const at::Tensor of_pixel = classes.slice(1, 0, kind_.classes).argmax(1).flatten();
    classes = of_pixel.bincount({}, kind_.classes).to(at::kFloat) / of_pixel.numel();
  }
  classes = classes.contiguous();
  const float* const begin = classes.data_ptr<float>();
  return {begin, begin + classes.numel()};
}

FrameLoss::Picture FrameLoss::picture_of(const at::Tensor& output) const {
  Picture picture{.height = output.size(2), .width = output.size(3), .channels = kind_.channels};
  if (task_ != frames::Task::Pixels) {
    picture.pixels = to_pixels(output, 0, kind_.channels);
    return picture;
  }
  picture.channels = frames::kRgb;
  const at::Tensor classes =
      output.detach().slice(1, 0, kind_.classes).argmax(1).to(at::kByte).contiguous();
  picture.pixels.reserve(static_cast<size_t>(3 * picture.height * picture.width));
  const uint8_t* const begin = classes.data_ptr<uint8_t>();
  for (const uint8_t* cls = begin; cls != begin + picture.height * picture.width; ++cls) {
    const std::array<uint8_t, 3> colour = class_colour(*cls);
    picture.pixels.insert(picture.pixels.end(), colour.begin(), colour.end());
  }
  return picture;
}

std::array<uint8_t, 3> class_colour(int cls) {
  // Easy to tell apart, also for most who see few colours; from the ninth on darker again.
  constexpr std::array<std::array<uint8_t, 3>, 8> kColours = {{{230, 159, 0},
                                                               {86, 180, 233},
                                                               {0, 158, 115},
                                                               {240, 228, 66},
                                                               {0, 114, 178},
                                                               {213, 94, 0},
                                                               {204, 121, 167},
                                                               {255, 255, 255}}};
  if (cls <= 0) return {40, 40, 40};
  const auto index = static_cast<size_t>(cls - 1);
  std::array<uint8_t, 3> colour = kColours[index % kColours.size()];
  const auto round = static_cast<int>(index / kColours.size());
  for (uint8_t& part : colour) part = static_cast<uint8_t>(part * 3 / (3 + 2 * round));
  return colour;
}

Losses FrameLoss::take(int64_t frame, double loss_sum, int64_t correct) {
  Made made;
  {
    MutexLock lock(mutex_);
    PENSTOCK_CHECK(!made_.empty(), frame);
    made = std::move(made_.front());
    made_.erase(made_.begin());
    if (!made.picture.pixels.empty()) {
      newest_ = std::move(made.picture);
      newest_.frame = frame;
    }
  }
  Losses losses;
  if (made.kind == Kind::Rebuilt) losses = {.rebuilt = 1, .rebuilt_sum = loss_sum};
  if (made.kind == Kind::Own)
    losses = {.frames = 1,
              .sum = loss_sum,
              .copied = made.copied ? 1 : 0,
              .copied_sum = made.copied.value_or(0),
              .hits = {.hits = made.labels > 0 ? correct : 0, .labels = made.labels}};
  if (on_frame_) {
    made.result.frame = frame;
    made.result.losses = losses;
    on_frame_(made.result);
  }
  return losses;
}

void FrameLoss::begin_run() {
  MutexLock lock(mutex_);
  made_.clear();
}

FrameLoss::Picture FrameLoss::newest() const {
  MutexLock lock(mutex_);
  is_watched_ = true;
  return newest_;
}

}  // namespace penstock::stream
