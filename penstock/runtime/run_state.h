// What the workers of one run share: channels, gradient sums, the first failure, the early-stop
// gate, losses. Internal to runtime.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/runtime/batch_source.h"
#include "penstock/runtime/global_gradients.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/shared_reduce.h"
#include "penstock/runtime/status_board.h"
#include "penstock/runtime/tensor_exchange.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/mutex.h"

namespace penstock::runtime {

/// Decides, race-free, after which mini-batch a stopped run ends: no worker has begun a later one.
class StopGate {
 public:
  explicit StopGate(const std::atomic<bool>* stop) : stop_(stop) {}
  /// True if the worker may work on the mini-batch. Cheap; call it whenever a worker meets a
  /// mini-batch for the first time.
  bool enter(MiniBatchId mini_batch);
  /// Last mini-batch that was begun, -1 if none.
  int64_t last_started() const;

 private:
  const std::atomic<bool>* stop_;
  mutable Mutex mutex_;
  int64_t started_ GUARDED_BY(mutex_) = -1;
  int64_t limit_ GUARDED_BY(mutex_) = INT64_MAX;
};

/// Collects losses from the workers of the output stage. Those of a mini-batch are added up in the
/// order of its micro-batches.
class LossCollector {
 public:
  LossCollector(const schedule::ScheduleShape& shape, const BatchSource& source,
                const RunOptions& options);
  void add(MiniBatchId mini_batch, MicroBatchId micro_batch, const MiniBatchStats& part);
  void set_norm(MiniBatchId mini_batch, double norm);
  /// The first `count` mini-batches.
  std::vector<MiniBatchStats> take(int64_t count);

 private:
  struct Open {
    std::map<MicroBatchId, MiniBatchStats> parts;
    int64_t samples = 0;
  };
  void add_up(MiniBatchId mini_batch, const Open& open) REQUIRES(mutex_);

  const BatchSource& source_;
  const RunOptions& options_;
  Mutex mutex_;
  std::vector<MiniBatchStats> stats_ GUARDED_BY(mutex_);
  std::map<MiniBatchId, Open> open_ GUARDED_BY(mutex_);  ///< not all samples are there
};

struct RunState {
  /// `weights_of_stage`: number of weight tensors of each stage.
  RunState(const schedule::Schedule& schedule, const BatchSource& source, const RunOptions& options,
           const std::vector<size_t>& weights_of_stage);

  /// Keeps the first failure and wakes everybody.
  void fail(std::exception_ptr failure);
  void rethrow_failure();
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

  const schedule::Schedule& schedule;
  const schedule::WorkerTable table;
  const BatchSource& source;
  const RunOptions& options;
  bool training = true;
  int64_t gradient_groups = 1;
  std::vector<bool> splits_backward;  ///< per stage: the schedule has I and W for it
  TensorExchange exchange;
  std::vector<std::unique_ptr<SharedReduce>> reduces;  ///< per stage; null without replicas
  std::unique_ptr<GlobalGradients> global;             ///< null unless the schedule has NORM
  StatusBoard board;
  StopGate gate;
  LossCollector losses;

 private:
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
