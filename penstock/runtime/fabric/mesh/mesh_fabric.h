// One run of one rank whose peers are processes. Internal to fabric/mesh.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/runtime/fabric/failure.h"
#include "penstock/runtime/fabric/forwarding.h"
#include "penstock/runtime/fabric/local/local_fabric.h"
#include "penstock/runtime/fabric/local/local_gather.h"
#include "penstock/runtime/fabric/mesh/mesh_channels.h"
#include "penstock/runtime/fabric/mesh/mesh_gate.h"
#include "penstock/runtime/fabric/mesh/mesh_gather.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"
#include "penstock/runtime/fabric/mesh/mesh_norm.h"
#include "penstock/runtime/fabric/mesh/stage_sum.h"

namespace penstock::runtime {

/// What the workers of this rank and the mesh's thread share. Thread-safe.
class MeshRun : public Fabric, public NoteReceiver {
 public:
  MeshRun(std::shared_ptr<MeshHub> hub, uint32_t run, Site site, const RunSetup& setup);
  ~MeshRun() override;

  /// After MeshHub::begin_run(): posts the first receives, and waits for all ranks.
  void open(const RunSetup& setup, Wait& wait);

  void on_note(int peer, const std::string& note) override;
  void on_lost(int peer, const std::string& why) override;

  int64_t origin_ns() const override { return origin_ns_; }
  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override;
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) override;
  const std::vector<size_t>& bucket_ends(StageId stage) const override {
    return bucket_ends_[stage.index()];
  }
  bool adds_in_background(StageId stage) const override { return sums_[stage.index()] != nullptr; }
  void start_sum(StageId stage, int replica, size_t bucket, Partials partials) override;
  WaitResult finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                        Wait& wait) override;
  void start_gather(StageId stage, int replica, size_t bucket, model::Tensors weights) override;
  WaitResult finish_gather(StageId stage, int replica, size_t bucket, Wait& wait) override;
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
  void open_sums(const RunSetup& setup, uint32_t& next_channel);
  void check_same_run(const RunSetup& setup, Wait& wait);
  void on_done(int rank, int64_t started, const std::string& failure, const std::string& workers);
  void end_if_all_done() REQUIRES(mutex_);
  /// False at the deadline.
  bool wait_for_end(Wait& wait);
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
  std::vector<std::unique_ptr<LocalSum>> reduces_;  ///< stages whose replicas are all here
  std::vector<std::shared_ptr<StageSum>> sums_;     ///< those whose replicas are on several ranks
  std::vector<std::unique_ptr<LocalGather>> local_gathers_;  ///< of the former, where they gather
  std::vector<std::shared_ptr<MeshGather>> gathers_;         ///< of the latter
  std::vector<std::vector<size_t>> bucket_ends_;             ///< per stage
  std::shared_ptr<SumService> service_;                      ///< while there are sums over ranks
  std::shared_ptr<SendWindow> window_;                       ///< the same
  std::unique_ptr<MeshNorm> norm_;

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

/// A rank's hold on its run, which ends with it.
class MeshFabric : public ForwardingFabric {
 public:
  MeshFabric(std::shared_ptr<MeshHub> hub, uint32_t run, std::shared_ptr<MeshRun> state)
      : ForwardingFabric(std::move(state)), hub_(std::move(hub)), run_(run) {}
  ~MeshFabric() override { hub_->end_run(run_); }

 private:
  std::shared_ptr<MeshHub> hub_;
  uint32_t run_;
};

}  // namespace penstock::runtime
