#include "penstock/stream/frame_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "penstock/stream/frame_tensors.h"
#include "penstock/util/steady_ns.h"

namespace penstock::stream {

namespace {

/// A picture is made for people, who see no more than so many per second.
constexpr int64_t kBetweenPictures_ns = 50'000'000;

/// Nothing is learned: a loss of zero whose gradient is zero.
model::LossResult no_loss(const at::Tensor& output) {
  model::LossResult result;
  result.scaled_loss = (output * 0).sum();
  return result;
}

}  // namespace

Losses& Losses::operator+=(const Losses& more) {
  frames += more.frames;
  sum += more.sum;
  rebuilt += more.rebuilt;
  rebuilt_sum += more.rebuilt_sum;
  hits.hits += more.hits.hits;
  hits.labels += more.hits.labels;
  return *this;
}

Losses& Losses::operator-=(const Losses& fewer) {
  return *this += {.frames = -fewer.frames,
                   .sum = -fewer.sum,
                   .rebuilt = -fewer.rebuilt,
                   .rebuilt_sum = -fewer.rebuilt_sum,
                   .hits = {.hits = -fewer.hits.hits, .labels = -fewer.hits.labels}};
}

model::LossResult FrameLoss::operator()(const at::Tensor& output, const at::Tensor& targets,
                                        const model::MiniBatchSize& mini_batch) {
  show(output);
  if (!targets.defined()) return no_loss(output);
  if (!needs_labels(task_)) return count(model::mean_squared_error(output, targets, mini_batch), 0);
  if (task_ == Task::Label)
    return count(model::cross_entropy(output, targets, mini_batch), targets.size(0));
  if (targets.dim() == 4) {
    const model::LossResult result =
        model::mean_squared_error(output.slice(1, kind_.classes), targets, mini_batch);
    MutexLock lock(mutex_);
    losses_ += {.rebuilt = 1, .rebuilt_sum = result.loss_sum};
    return result;
  }
  const model::LossResult result =
      model::pixel_cross_entropy(output.slice(1, 0, kind_.classes), targets, mini_batch);
  return count(result, result.targets);
}

model::LossResult FrameLoss::count(const model::LossResult& result, int64_t labels) {
  MutexLock lock(mutex_);
  losses_ += {.frames = 1,
              .sum = result.loss_sum,
              .hits = {.hits = labels > 0 ? result.correct : 0, .labels = labels}};
  return result;
}

void FrameLoss::show(const at::Tensor& output) {
  {
    MutexLock lock(mutex_);
    const int64_t now = steady_ns();
    if (!is_watched_ || task_ == Task::Label || now - shown_ns_ < kBetweenPictures_ns) return;
    shown_ns_ = now;
  }
  Picture picture{.height = output.size(2), .width = output.size(3)};
  if (task_ == Task::Pixels) {
    picture.channels = 1;
    const at::Tensor classes =
        output.detach().slice(1, 0, kind_.classes).argmax(1, /*keepdim=*/true).to(at::kFloat);
    picture.pixels = to_pixels(classes / std::max(kind_.classes - 1, 1) - 0.5, 0, 1);
  } else {
    picture.channels = kind_.channels;
    picture.pixels = to_pixels(output, 0, kind_.channels);
  }
  MutexLock lock(mutex_);
  newest_ = std::move(picture);
}

Losses FrameLoss::take() {
  MutexLock lock(mutex_);
  return std::exchange(losses_, {});
}

FrameLoss::Picture FrameLoss::newest() const {
  MutexLock lock(mutex_);
  is_watched_ = true;
  return newest_;
}

}  // namespace penstock::stream
