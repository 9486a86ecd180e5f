// How a run ends on all ranks. The first failure of any rank closes it everywhere. When a rank's
// workers have ended it tells rank 0, and when all have, rank 0 tells how the run ended. Internal
// to fabric/mesh.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "penstock/net/wire.h"
#include "penstock/runtime/fabric/failure.h"
#include "penstock/runtime/fabric/local/loss_collector.h"
#include "penstock/runtime/fabric/mesh/mesh_gate.h"
#include "penstock/runtime/fabric/mesh/rank_reports.h"
#include "penstock/runtime/fabric/run_control.h"

namespace penstock::runtime {

/// Thread-safe.
class RunEnd {
 public:
  /// `close` wakes whoever waits in the run. It is called only when the run is open, but for a
  /// failure that there is no memory to describe.
  RunEnd(const RunNotes& notes, RankReports& reports, MeshStop& stop, LossCollector& losses,
         std::function<void()> close);
  ~RunEnd();

  /// All that `close` closes is there: what has failed before is closed now.
  void open();
  // As in RunControl.
  bool failed() const;
  void fail(std::exception_ptr exception) noexcept;
  RunOutcome finish(Wait& wait);

  // Notes of other ranks.
  void on_lost(int peer, const std::string& why);
  void on_fail(net::WireReader& in);
  void on_done(int peer, net::WireReader& in);
  void on_end(net::WireReader& in);

 private:
  struct Outcome;
  /// Keeps the first failure and closes everything. False: there was one already.
  bool close(Failure failure, std::exception_ptr exception);
  void tell(const Failure& failure) const;
  void add_done(int rank, int64_t started, const std::string& workers);
  void end_if_all_done() REQUIRES(mutex_);
  /// False at the deadline.
  bool wait_for_end(Wait& wait);
  /// Tells rank 0 that this rank's workers have ended; returns what they did when the run failed.
  std::string report_done();

  const RunNotes& notes_;
  RankReports& reports_;
  MeshStop& stop_;
  LossCollector& losses_;  ///< on rank 0
  std::function<void()> close_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool is_open_ GUARDED_BY(mutex_) = false;
  std::optional<Failure> failure_ GUARDED_BY(mutex_);
  std::string workers_then_ GUARDED_BY(mutex_);      ///< what they did when it failed
  std::exception_ptr exception_ GUARDED_BY(mutex_);  ///< where it happened on this rank
  std::set<int> lost_ GUARDED_BY(mutex_);
  // On rank 0:
  std::map<int, std::string> workers_of_done_ GUARDED_BY(mutex_);
  int64_t last_started_ GUARDED_BY(mutex_) = -1;
  // On all:
  std::unique_ptr<Outcome> outcome_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
