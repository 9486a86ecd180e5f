// Makes the inputs of micro-batches before the first stage asks for them, on threads of its own.
//
//   const PrefetchedBatches ahead(batches, {.order = ids, .threads = 2});
//   pipeline.run(schedule, ahead, options);
#pragma once

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "penstock/runtime/batch_source.h"
#include "penstock/util/process/mutex.h"

namespace penstock::train {

struct PrefetchOptions {
  /// The micro-batches whose inputs will be asked for here, in about this order, each once.
  std::vector<MicroBatchId> order;
  int threads = 1;
  /// Micro-batches that are made or being made and were not asked for yet.
  int64_t ahead = 4;
  /// For a GPU: in memory from which copies to it do not block.
  bool for_transfer = false;
};

/// The same batches as `source`, to which it keeps a reference. Inputs that are asked for out of
/// order, or again, are made at once. Thread-safe.
class PrefetchedBatches : public runtime::BatchSource {
 public:
  PrefetchedBatches(const runtime::BatchSource& source, PrefetchOptions options);
  /// Waits for what is being made.
  ~PrefetchedBatches() override;

  /// Throws what making it has thrown.
  model::Tensors inputs(MicroBatchId b) const override;
  at::Tensor targets(MicroBatchId b) const override { return source_.targets(b); }
  int64_t samples(MicroBatchId b) const override { return source_.samples(b); }
  std::vector<model::Shape> input_shapes(MicroBatchId b) const override {
    return source_.input_shapes(b);
  }
  int64_t mini_batch_samples(MiniBatchId t) const override { return source_.mini_batch_samples(t); }
  int64_t mini_batch_targets(MiniBatchId t) const override { return source_.mini_batch_targets(t); }
  int64_t micro_batch_targets(MicroBatchId b) const override {
    return source_.micro_batch_targets(b);
  }
  uint64_t seed(MicroBatchId b) const override { return source_.seed(b); }

 private:
  enum class State : uint8_t { Waiting, Working, Ready, Taken };
  struct Slot {
    State state = State::Waiting;
    model::Tensors inputs = {};
    std::exception_ptr failure = {};
  };

  void work();
  /// The next slot to make, which is then Working; negative: the end.
  int64_t next_slot();

  const runtime::BatchSource& source_;
  PrefetchOptions options_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable std::vector<Slot> slots_ GUARDED_BY(mutex_);  ///< as options_.order
  mutable int64_t outstanding_ GUARDED_BY(mutex_) = 0;  ///< Working or Ready
  int64_t next_ GUARDED_BY(mutex_) = 0;
  bool is_ending_ GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace penstock::train
