// The sums of one run on one rank, stage by stage: in memory where all replicas of a stage are
// here, over the mesh where they are on several ranks. Internal to fabric/mesh.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/local/local_gather.h"
#include "penstock/runtime/fabric/local/local_sum.h"
#include "penstock/runtime/fabric/mesh/mesh_gather.h"
#include "penstock/runtime/fabric/mesh/mesh_norm.h"
#include "penstock/runtime/fabric/mesh/stage_sum.h"

namespace penstock::runtime {

/// Thread-safe.
class MeshRunSums : public Sums {
 public:
  /// Uses the run's channels from `first_channel` on. `fail` hears of failures of the threads that
  /// add.
  MeshRunSums(net::Mesh& mesh, uint32_t run, uint32_t first_channel, const Site& site,
              const RunSetup& setup, std::function<void(std::exception_ptr)> fail);

  /// Posts the first receives.
  void start();
  /// Wakes everybody; all later calls return Closed.
  void close();
  /// Ends the threads that add and send; before the sums and what `fail` needs are destroyed.
  void stop();

  const std::vector<size_t>& bucket_ends(StageId stage) const override {
    return stages_[stage.index()].bucket_ends;
  }
  bool adds_in_background(StageId stage) const override {
    return stages_[stage.index()].sum != nullptr;
  }
  void start_sum(StageId stage, int replica, size_t bucket, Partials partials) override;
  WaitResult finish_sum(StageId stage, int replica, size_t bucket, BucketSum& sum,
                        Wait& wait) override;
  void start_gather(StageId stage, int replica, size_t bucket, model::Tensors weights) override;
  WaitResult finish_gather(StageId stage, int replica, size_t bucket, Wait& wait) override;
  WaitResult combine(NormShare share, NormTotals& totals, Wait& wait) override;

 private:
  struct Stage {
    std::vector<size_t> bucket_ends;
    // Where all replicas are here:
    std::unique_ptr<LocalSum> local_sum = {};
    std::unique_ptr<LocalGather> local_gather = {};
    // Where they are on several ranks, this one or not:
    std::shared_ptr<StageSum> sum = {};
    std::shared_ptr<MeshGather> gather = {};
  };
  Stage make_stage(size_t stage, std::vector<int> ranks, const RunSetup& setup);
  void make_local(Stage& stage, size_t index, int replicas, const RunSetup& setup);
  std::shared_ptr<StageSum> make_sum(StageSumSetup sum, StateSharing sharing,
                                     const RunSetup& setup);
  /// The first of so many channels that nobody has.
  uint32_t take_channels(uint32_t count);

  net::Mesh& mesh_;
  uint32_t run_;
  uint32_t next_channel_;
  const Site site_;
  bool servers_add_;
  std::function<void(std::exception_ptr)> fail_;
  std::vector<Stage> stages_;
  std::shared_ptr<SumService> service_;  ///< while there are sums over ranks
  std::shared_ptr<SendWindow> window_;   ///< the same
  std::unique_ptr<MeshNorm> norm_;
};

}  // namespace penstock::runtime
