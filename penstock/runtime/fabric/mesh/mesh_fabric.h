// One run of one rank whose peers are processes. Internal to fabric/mesh.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/local/loss_collector.h"
#include "penstock/runtime/fabric/mesh/mesh_channels.h"
#include "penstock/runtime/fabric/mesh/mesh_gate.h"
#include "penstock/runtime/fabric/mesh/mesh_hub.h"
#include "penstock/runtime/fabric/mesh/mesh_run_sums.h"
#include "penstock/runtime/fabric/mesh/mesh_teams.h"
#include "penstock/runtime/fabric/mesh/rank_reports.h"
#include "penstock/runtime/fabric/mesh/run_end.h"
#include "penstock/runtime/fabric/mesh/run_notes.h"

namespace penstock::runtime {

/// What the workers of this rank and the mesh's thread share: it gives each call and each note to
/// the part that it belongs to. Thread-safe.
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
  WaitResult send(const Message& message, model::Tensors tensors, Wait& wait) override {
    return channels_->send(message, std::move(tensors), wait);
  }
  WaitResult receive(const Message& message, model::Tensors& tensors, Wait& wait) override {
    return channels_->receive(message, tensors, wait);
  }
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
  void start_exchange(const TeamExchange& exchange, model::Tensors parts,
                      const std::vector<TensorLayout>& expected) override {
    teams_->start_exchange(exchange, std::move(parts), expected);
  }
  WaitResult finish_exchange(const TeamExchange& exchange, int from, const TensorLayout& expected,
                             at::Tensor& part, Wait& wait) override {
    return teams_->finish_exchange(exchange, from, expected, part, wait);
  }
  bool begin(WorkerId, MiniBatchId mini_batch) override { return stop_.begin(mini_batch); }
  void report(MiniBatchId mini_batch, MicroBatchId micro_batch,
              const MiniBatchStats& part) override;
  bool failed() const override { return end_.failed(); }
  void fail(std::exception_ptr exception) noexcept override { end_.fail(std::move(exception)); }
  StatusBoard& board() override { return reports_.board(); }
  std::string who_waits() override { return reports_.all(); }
  RunOutcome finish(Wait& wait) override { return end_.finish(wait); }

 private:
  void on_loss(net::WireReader& in);
  void close();

  RunNotes notes_;
  Site site_;
  int64_t origin_ns_ = 0;
  MeshStop stop_;
  LossCollector losses_;  ///< on rank 0
  RankReports reports_;
  RunEnd end_;
  // Made by open():
  std::unique_ptr<MeshChannels> channels_;
  std::unique_ptr<MeshTeams> teams_;
  std::unique_ptr<MeshRunSums> sums_;
};

}  // namespace penstock::runtime
