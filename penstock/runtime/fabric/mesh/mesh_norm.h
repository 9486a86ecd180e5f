// Fabric::combine() over ranks. The workers of a rank put their shares together; rank 0 gets all of
// them, adds up, and answers. Steps: 2. Bytes: each copy of a tied gradient to rank 0, each sum
// back to the ranks that want it, and 16 per weight tensor.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "penstock/net/mesh.h"
#include "penstock/runtime/fabric/fabric.h"
#include "penstock/runtime/fabric/mesh/raw_message.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class MeshNorm {
 public:
  /// Uses the channels from `first_channel` on: as many as ranks, twice. On ranks with workers.
  MeshNorm(net::Mesh& mesh, uint32_t run, uint32_t first_channel, const Site& site,
           const RunSetup& setup);

  static uint32_t channels(int ranks) { return 2 * static_cast<uint32_t>(ranks); }
  void start();
  WaitResult run(NormShare share, NormTotals& totals, Wait& wait);
  void close();

 private:
  /// What this rank's workers have brought together.
  struct Round {
    NormShare share = {};
    int came = 0;
    int left = 0;  ///< workers that have not taken the totals
    bool is_ready = false;
    NormTotals totals = {};
  };
  net::Tag tag(bool answer, int peer, uint64_t round) const;
  void post(uint64_t round);
  static void merge(NormShare& into, NormShare&& share);
  /// By the last worker of the rank to come.
  WaitResult exchange(uint64_t round, NormShare share, NormTotals& totals, Wait& wait);
  WaitResult ask_rank_0(uint64_t round, const NormShare& share, NormTotals& totals, Wait& wait);
  WaitResult serve_all(uint64_t round, NormShare share, NormTotals& totals, Wait& wait);
  void add_up(const NormShare& share, double& norm, std::vector<at::Tensor>& sums) const;

  net::Mesh& mesh_;
  uint32_t run_;
  uint32_t first_channel_;
  int ranks_;  ///< with workers
  int own_workers_;
  std::vector<TieGroup> ties_;
  size_t num_model_weights_;
  std::vector<RawMessage> posted_;  ///< by rank: shares on rank 0, the answer elsewhere
  std::map<WorkerId, uint64_t> round_of_ GUARDED_BY(mutex_);
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Round> rounds_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace penstock::runtime
