// Saves checkpoints while training goes on: copies the state, then a thread writes it. A checkpoint
// counts only when it is complete (checkpoint.h), so an end at any moment leaves the one before.
//
//   CheckpointWriter writer(directory, model, /*kept=*/2, ranks);
//   writer.save(checkpoint);                  // returns when the state is copied
//   const auto folder = writer.finish();      // when it is on disk
//
// One save at a time, so at most one copy of weights, buffers and optimiser state exists. Not
// thread-safe, but for has_failed().
#pragma once

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>

#include "penstock/runtime/fabric/world.h"
#include "penstock/train/checkpoint/checkpoint.h"

namespace penstock::train {

class CheckpointWriter {
 public:
  /// As save_checkpoint(). Collective; throws TimeoutError. `model` and ranks.world must outlive
  /// it.
  CheckpointWriter(std::filesystem::path directory, const model::Model& model,
                   const KeptCheckpoints& kept, const runtime::Ranks& ranks);
  /// Blocks until the save under way has ended; its failure becomes a warning in the log.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// The checkpoint of this step stays, too, from the next save on.
  void keep_best(int64_t step) { kept_.best = step; }
  /// Copies the state and begins to save it. Throws InternalError while a save is under way, so
  /// call finish() before. Every rank calls it.
  void save(const Checkpoint& checkpoint);
  /// Blocks until the save under way has ended; returns its folder, or nothing if there was none.
  /// Throws what save_checkpoint() threw, on all ranks.
  std::optional<std::filesystem::path> finish();
  /// Whether finish() will throw; any thread may ask.
  bool has_failed() const { return has_failed_; }

 private:
  std::filesystem::path directory_;
  const model::Model* model_;
  KeptCheckpoints kept_;
  runtime::Ranks ranks_;
  std::unique_ptr<runtime::World> aside_;  ///< of the thread that writes; null: this process alone
  std::atomic<bool> has_failed_{false};
  std::future<std::filesystem::path> saving_;  ///< last: its thread uses the others
};

}  // namespace penstock::train
