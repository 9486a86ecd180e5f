// One run of one rank whose peers are processes. Internal to fabric/mesh.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/failure.h"
#include "penstock/runtime/fabric/local/loss_collector.h"
#include "penstock/runtime/fabric/local/tensor_exchange.h"
#include "penstock/runtime/fabric/mesh/mesh_channels.h"
#include "penstock/runtime/fabric/mesh/mesh_gate.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"
#include "penstock/runtime/fabric/mesh/mesh_run_sums.h"

namespace penstock::runtime {

/// What the workers of this rank and the mesh's thread share. Thread-safe.
class MeshRun : public Fabric, public NoteReceiver {
 public:
  /// Takes the number of a run of the hub and begins it.
  MeshRun(std::shared_ptr<MeshHub> hub, Site site, const RunSetup& setup);
  ~MeshRun() override;

  /// Posts the first receives, and waits for all ranks.
  void open(const RunSetup& setup, Wait& wait);

  void on_note(int peer, const std::string& note) override;
  void on_lost(int peer, const std::string& why) override;

  int64_t origin_ns() const override { return origin_ns_; }
  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override;
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) override;
  const std::vector<size_t>& bucket_ends(StageId stage) const override {
    return sums_->bucket_ends(stage);
  }
  bool adds_in_background(StageId stage) const override { return sums_->adds_in_background(stage); }
  void start_sum(StageId stage, int replica, size_t bucket, Partials partials) override {
    sums_->start_sum(stage, replica, bucket, std::move(partials));
  }
  WaitResult finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                        Wait& wait) override {
    return sums_->finish_sum(stage, replica, bucket, sum, wait);
  }
  void start_gather(StageId stage, int replica, size_t bucket, model::Tensors weights) override {
    sums_->start_gather(stage, replica, bucket, std::move(weights));
  }
  WaitResult finish_gather(StageId stage, int replica, size_t bucket, Wait& wait) override {
    return sums_->finish_gather(stage, replica, bucket, wait);
  }
  WaitResult combine(NormShare share, NormTotals& totals, Wait& wait) override;
  bool begin(WorkerId worker, MiniBatchId mini_batch) override;
  void report(MiniBatchId mini_batch, MicroBatchId micro_batch,
              const MiniBatchStats& part) override;
  bool failed() const override;
  void fail(std::exception_ptr exception) noexcept override;
  StatusBoard& board() override { return board_; }
  std::string who_waits() override;
  RunOutcome finish(Wait& wait) override;

 private:
  struct Outcome;
  bool is_first() const { return site_.rank == 0; }
  bool is_local(const Message& message) const;
  void tell_all(const std::string& note);
  void tell_failure(const Failure& failure);
  void ask_for_stop();
  void freeze_all();
  void on_frozen(int64_t started);
  /// Keeps the first failure and closes everything. False: there was one already.
  bool close(Failure failure, std::exception_ptr exception);
  void close_all();
  void check_same_run(const RunSetup& setup, Wait& wait);
  void on_done(int rank, int64_t started, const std::string& failure, const std::string& workers);
  void end_if_all_done() REQUIRES(mutex_);
  /// False at the deadline.
  bool wait_for_end(Wait& wait);
  /// Tells rank 0 that this rank's workers have ended; returns what they did when the run failed.
  std::string report_done();
  void on_loss(net::WireReader& in);
  void on_end(net::WireReader& in);
  std::string own_workers() const { return board_.report(site_.own_workers()); }
  std::string name_of(int rank) const;

  std::shared_ptr<MeshHub> hub_;
  Site site_;
  schedule::WorkerTable table_;
  std::vector<std::string> labels_;
  uint32_t run_;
  int64_t origin_ns_ = 0;

  TensorExchange exchange_;
  StatusBoard board_;
  MeshGate gate_;
  StopRound stop_round_;
  LossCollector losses_;  ///< on rank 0
  std::unique_ptr<MeshChannels> channels_;
  std::unique_ptr<MeshRunSums> sums_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool is_open_ GUARDED_BY(mutex_) = false;  ///< channels_ and so on are there
  std::optional<Failure> failure_ GUARDED_BY(mutex_);
  std::string workers_then_ GUARDED_BY(mutex_);            ///< what they did when it failed
  std::exception_ptr exception_ GUARDED_BY(mutex_);        ///< where it happened on this rank
  std::map<int, std::string> answers_ GUARDED_BY(mutex_);  ///< to who_waits(), by rank
  std::map<int, std::string> lost_ GUARDED_BY(mutex_);
  // On rank 0:
  std::map<int, std::string> workers_of_done_ GUARDED_BY(mutex_);
  int64_t last_started_ GUARDED_BY(mutex_) = -1;
  // On all:
  std::unique_ptr<Outcome> outcome_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
