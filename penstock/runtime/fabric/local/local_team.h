// What the members of the team of one replica give each other within a process: tensors by
// reference. Internal to runtime.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/runtime/fabric/teams.h"
#include "penstock/schedule/schedule.h"
#include "penstock/util/process/mutex.h"

namespace penstock::runtime {

/// Thread-safe.
class LocalTeam {
 public:
  explicit LocalTeam(int members);

  /// Gives member `to` a tensor. Never blocks.
  void give(const TeamExchange& exchange, int to, at::Tensor part);
  /// Teams::finish_exchange().
  WaitResult take(const TeamExchange& exchange, int from, const TensorLayout& expected,
                  at::Tensor& part, Wait& wait);
  /// Wakes everybody; all later calls return Closed.
  void close();

 private:
  struct Given {
    at::Tensor part;  ///< undefined: nothing is there
    uint64_t signature = 0;
  };
  Given& given(int64_t number, int from, int to) REQUIRES(mutex_);

  const size_t members_;
  Mutex mutex_;
  CondVar changed_;
  /// Of two exchanges in turn, by who gives and who takes: a member may start an exchange while
  /// others still take what they were given in the one before.
  std::vector<Given> given_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

/// The teams of a run whose members are all in this process. Thread-safe.
class LocalTeams : public Teams {
 public:
  explicit LocalTeams(const schedule::ScheduleShape& shape);

  void start_exchange(const TeamExchange& exchange, model::Tensors parts,
                      const std::vector<TensorLayout>& expected) override;
  WaitResult finish_exchange(const TeamExchange& exchange, int from, const TensorLayout& expected,
                             at::Tensor& part, Wait& wait) override {
    return team(exchange).take(exchange, from, expected, part, wait);
  }
  /// Wakes everybody; all later calls return Closed.
  void close();

 private:
  LocalTeam& team(const TeamExchange& exchange) const;

  std::map<std::pair<StageId, int>, std::unique_ptr<LocalTeam>> teams_;  ///< by first, replica
};

}  // namespace penstock::runtime
