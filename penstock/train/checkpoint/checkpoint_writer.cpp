#include "penstock/train/checkpoint/checkpoint_writer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <exception>
#include <utility>

#include "penstock/util/check.h"
#include "penstock/util/process/log.h"

namespace penstock::train {
namespace {

void copy_all(std::vector<at::Tensor>& tensors) {
  for (at::Tensor& tensor : tensors)
    tensor = tensor.detach().to(tensor.options().device(at::kCPU), /*non_blocking=*/false,
                                /*copy=*/true);
}

/// The same in memory of its own, which training does not change.
Checkpoint copy_of(const Checkpoint& checkpoint) {
  const at::NoGradGuard no_grad;
  Checkpoint copy = checkpoint;
  for (LayerState& layer : copy.layers) {
    copy_all(layer.weights);
    copy_all(layer.buffers);
    copy_all(layer.carried);
    for (auto& [name, tensors] : layer.optimizer) copy_all(tensors);
  }
  return copy;
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path directory, const model::Model& model,
                                   const KeptCheckpoints& kept, const runtime::Ranks& ranks)
    : directory_(std::move(directory)), model_(&model), kept_(kept), ranks_(ranks) {
  if (ranks.world == nullptr) return;
  runtime::Wait wait = runtime::wait_for(ranks.deadline);
  aside_ = ranks.world->aside(wait);
  ranks_.world = aside_.get();
}

CheckpointWriter::~CheckpointWriter() {
  try {
    finish();
  } catch (const std::exception& error) {
    log_warning(fmt::format("the last checkpoint was not saved: {}", error.what()));
  }
}

void CheckpointWriter::save(const Checkpoint& checkpoint) {
  PENSTOCK_CHECK(!saving_.valid(), "a save is under way");
  saving_ =
      std::async(std::launch::async, [this, kept = kept_, copy = copy_of(checkpoint)]() mutable {
        try {
          const Checkpoint own = std::move(copy);  // freed when it is saved, not when that is asked
          return save_checkpoint(directory_, *model_, own, kept, ranks_);
        } catch (...) {
          has_failed_ = true;
          throw;
        }
      });
}

std::optional<std::filesystem::path> CheckpointWriter::finish() {
  if (!saving_.valid()) return std::nullopt;
  return saving_.get();
}

}  // namespace penstock::train
