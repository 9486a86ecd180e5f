// What the workers of all ranks of a run are doing, for the text of a failure. Internal to
// fabric/mesh.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/runtime/fabric/mesh/run_notes.h"
#include "penstock/runtime/fabric/site.h"
#include "penstock/runtime/fabric/status_board.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class RankReports {
 public:
  RankReports(const RunNotes& notes, const Site& site, const schedule::ScheduleShape& shape);

  StatusBoard& board() { return board_; }
  /// "rank 1 (worker 2: stage 2)".
  std::string name_of(int rank) const;
  bool has_workers() const { return !site_.own_workers().empty(); }
  /// A line for each of this rank's workers.
  std::string own() const { return board_.report(site_.own_workers()); }
  /// RunControl::who_waits(): asks the other ranks.
  std::string all();

  void on_answer(int peer, std::string workers);
  void on_lost(int peer, const std::string& why);

 private:
  const RunNotes& notes_;
  const Site& site_;
  std::vector<std::string> labels_;
  StatusBoard board_;
  Mutex mutex_;
  CondVar changed_;
  std::map<int, std::string> answers_ GUARDED_BY(mutex_);  ///< to all(), by rank
  std::map<int, std::string> lost_ GUARDED_BY(mutex_);
};

}  // namespace penstock::runtime
