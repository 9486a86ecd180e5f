// What workers move to the memory of their host and back, while they compute: one way out and one
// in per worker, each for one move at a time. Internal to the simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "penstock/schedule/action.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::simulate::detail {

class HostMoves {
  using Key = std::pair<StageId, MicroBatchId>;
  static Key key(const schedule::Action& action) { return {action.stage, action.micro_batch}; }
  template <class Coming>
  static auto find(Coming& coming, const schedule::Action& action) {
    return std::find_if(coming.begin(), coming.end(),
                        [&](const auto& entry) { return entry.first == key(action); });
  }

 public:
  /// `moves`: whether the schedule has any.
  HostMoves(size_t num_workers, bool moves) : workers_(moves ? num_workers : 0) {}

  bool any() const { return !workers_.empty(); }

  /// When OFFLOAD may begin: the worker's last one has arrived.
  int64_t out_free_ns(int32_t worker) const { return at(worker).out_free_ns; }
  void offload(int32_t worker, const schedule::Action& action, int64_t now_ns, int64_t move_ns) {
    Ways& ways = at(worker);
    ways.out_free_ns = saturating_add(std::max(now_ns, ways.out_free_ns), move_ns);
    ways.leaving = key(action);
  }
  void load(int32_t worker, const schedule::Action& action, int64_t now_ns, int64_t move_ns) {
    Ways& ways = at(worker);
    int64_t start_ns = std::max(now_ns, ways.in_free_ns);
    if (ways.leaving == key(action)) start_ns = std::max(start_ns, ways.out_free_ns);
    ways.in_free_ns = saturating_add(start_ns, move_ns);
    ways.coming.push_back({key(action), ways.in_free_ns});
  }
  /// When B or I has what it needs; 0: it is there.
  int64_t ready_ns(int32_t worker, const schedule::Action& action) const {
    const auto& coming = at(worker).coming;
    const auto found = find(coming, action);
    return found == coming.end() ? 0 : found->second;
  }
  /// B or I has used it.
  void take(int32_t worker, const schedule::Action& action) {
    auto& coming = at(worker).coming;
    const auto found = find(coming, action);
    if (found != coming.end()) coming.erase(found);
  }

 private:
  struct Ways {
    int64_t out_free_ns = 0;
    int64_t in_free_ns = 0;
    Key leaving{StageId{-1}, MicroBatchId{-1}};        ///< by the last OFFLOAD
    std::vector<std::pair<Key, int64_t>> coming = {};  ///< until when; few
  };

  Ways& at(int32_t worker) { return workers_[static_cast<size_t>(worker)]; }
  const Ways& at(int32_t worker) const { return workers_[static_cast<size_t>(worker)]; }

  std::vector<Ways> workers_;
};

}  // namespace penstock::simulate::detail
