#include "penstock/stream/profiled_loss.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <memory>

#include "penstock/stream/frame_loss.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::stream {

namespace {

at::Tensor random_targets(frames::Task task, const frames::FrameKind& kind, frames::FrameSize size,
                          uint64_t seed) {
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(derive_seed(seed, hash_name("targets")));
  if (!needs_labels(task)) {
    return at::empty({1, kind.channels, size.height, size.width}, at::kFloat)
        .uniform_(-0.5, 0.5, generator);
  }
  PENSTOCK_CHECK(kind.classes > 0, to_string(task), kind.classes);
  at::Tensor targets = task == frames::Task::Label
                           ? at::empty({1}, at::kLong)
                           : at::empty({1, size.height, size.width}, at::kLong);
  return targets.random_(0, kind.classes, generator);
}

}  // namespace

model::ProfiledLoss profiled_loss(frames::Task task, const frames::FrameKind& kind,
                                  frames::FrameSize size, uint64_t seed) {
  return {
      [loss = std::make_shared<FrameLoss>(task, kind)](
          const at::Tensor& output, const at::Tensor& targets,
          const model::MiniBatchSize& mini_batch) { return (*loss)(output, targets, mini_batch); },
      random_targets(task, kind, size, seed)};
}

}  // namespace penstock::stream
