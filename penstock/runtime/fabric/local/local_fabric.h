// The fabric of workers in one process: tensors by reference, sums and tables in shared memory.
// Messages and bytes on the wire: none. Internal to runtime.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/failure.h"
#include "penstock/runtime/fabric/local/local_gather.h"
#include "penstock/runtime/fabric/local/local_sum.h"
#include "penstock/runtime/fabric/local/local_team.h"
#include "penstock/runtime/fabric/local/loss_collector.h"
#include "penstock/runtime/fabric/local/norm_table.h"
#include "penstock/runtime/fabric/local/stop_gate.h"
#include "penstock/runtime/fabric/local/tensor_exchange.h"

namespace penstock::runtime {

/// What the workers of one run share, whichever of the ranks in this process they belong to.
/// Thread-safe.
class LocalRun {
 public:
  /// `setups`: one per rank. What is the same on every rank is taken from rank 0's.
  explicit LocalRun(const std::vector<const RunSetup*>& setups);

  void fail(int rank, std::exception_ptr exception) noexcept;
  bool failed() const;
  /// Throws the first failure, if there is one: the exception itself on the rank where it happened,
  /// an equal one elsewhere, so that no two threads share an exception object.
  void raise_failure(int rank);
  /// Of a stage with several replicas.
  LocalSum& sum(StageId stage) const;
  /// Of a stage whose replicas share out the optimiser's state.
  LocalGather& gather(StageId stage) const;

  const int64_t origin_ns;
  TensorExchange exchange;
  std::vector<std::unique_ptr<LocalSum>> sums;  ///< per stage; null without replicas
  std::vector<std::unique_ptr<LocalGather>>
      gathers;                       ///< per stage; null unless state is shared out
  std::unique_ptr<NormTable> norms;  ///< null unless the schedule has NORM
  LocalTeams teams;
  StatusBoard board;
  StopGate gate;
  LossCollector losses;
  Barrier end;  ///< of the ranks

 private:
  mutable Mutex mutex_;
  std::exception_ptr exception_ GUARDED_BY(mutex_);
  int rank_ GUARDED_BY(mutex_) = 0;  ///< where it happened
  std::optional<Failure> failure_ GUARDED_BY(mutex_);
};

/// One rank's end of it.
class LocalFabric : public Fabric {
 public:
  LocalFabric(std::shared_ptr<LocalRun> run, int rank) : run_(std::move(run)), rank_(rank) {}

  int64_t origin_ns() const override { return run_->origin_ns; }
  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override {
    return run_->exchange.send(message, std::move(tensors), wait);
  }
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) override {
    return run_->exchange.receive(message, tensors, wait);
  }
  const std::vector<size_t>& bucket_ends(StageId stage) const override {
    return run_->sum(stage).bucket_ends();
  }
  bool adds_in_background(StageId) const override { return false; }
  void start_sum(StageId stage, int replica, size_t, Partials partials) override {
    run_->sum(stage).start(replica, std::move(partials));
  }
  WaitResult finish_sum(StageId stage, int replica, size_t, BucketSum& sum, Wait& wait) override {
    return run_->sum(stage).finish(replica, sum.sums, wait);
  }
  void start_gather(StageId stage, int replica, size_t, model::Tensors weights) override {
    run_->gather(stage).start(replica, std::move(weights));
  }
  WaitResult finish_gather(StageId stage, int replica, size_t, Wait& wait) override {
    return run_->gather(stage).finish(replica, wait);
  }
  WaitResult combine(NormShare share, NormTotals& totals, Wait& wait) override;
  void start_exchange(const TeamExchange& exchange, model::Tensors parts,
                      const std::vector<TensorLayout>& expected) override {
    run_->teams.start_exchange(exchange, std::move(parts), expected);
  }
  WaitResult finish_exchange(const TeamExchange& exchange, int from, const TensorLayout& expected,
                             at::Tensor& part, Wait& wait) override {
    return run_->teams.finish_exchange(exchange, from, expected, part, wait);
  }
  bool begin(WorkerId, MiniBatchId mini_batch) override { return run_->gate.enter(mini_batch); }
  void report(MiniBatchId mini_batch, MicroBatchId micro_batch,
              const MiniBatchStats& part) override {
    run_->losses.add(mini_batch, micro_batch, part);
  }
  bool failed() const override { return run_->failed(); }
  void fail(std::exception_ptr failure) noexcept override { run_->fail(rank_, std::move(failure)); }
  StatusBoard& board() override { return run_->board; }
  std::string who_waits() override { return run_->board.report(); }
  RunOutcome finish(Wait& wait) override;

 private:
  std::shared_ptr<LocalRun> run_;
  int rank_;
};

}  // namespace penstock::runtime
