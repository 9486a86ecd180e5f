// A team of threads for tests.
//
//   const std::vector<at::Tensor> results = in_team(3, [](Team& team) { return team.sum(...); });
#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/model/team.h"

namespace penstock::model::team_testing {

class ThreadTeam final : public Team {
 public:
  struct Shared {
    explicit Shared(int members) : barrier(members), given(static_cast<size_t>(members)) {}
    std::barrier<> barrier;
    std::vector<std::vector<at::Tensor>> given;
  };
  ThreadTeam(Shared& shared, int number) : shared_(shared), number_(number) {}

  int size() const override { return static_cast<int>(shared_.given.size()); }
  int member() const override { return number_; }
  std::vector<at::Tensor> exchange(std::vector<at::Tensor> parts,
                                   const std::vector<std::vector<int64_t>>& sizes) override {
    for (size_t m = 0; m < parts.size(); ++m) {
      if (static_cast<int>(m) != number_) sent_bytes += static_cast<int64_t>(parts[m].nbytes());
    }
    shared_.given[static_cast<size_t>(number_)] = std::move(parts);
    shared_.barrier.arrive_and_wait();
    std::vector<at::Tensor> taken;
    for (size_t m = 0; m < shared_.given.size(); ++m) {
      taken.push_back(shared_.given[m][static_cast<size_t>(number_)]);
      if (taken.back().sizes().vec() != sizes[m]) mistaken = true;
    }
    shared_.barrier.arrive_and_wait();
    return taken;
  }

  int64_t sent_bytes = 0;
  bool mistaken = false;  ///< a member gave something of other sizes than was said

 private:
  Shared& shared_;
  int number_;
};

/// Runs `work` in a thread for each member; their results, in order. Throws the first failure of a
/// member, after all have ended: a failure between two exchanges must happen to all.
template <class Result>
std::vector<Result> in_team(int members, const std::function<Result(ThreadTeam&)>& work) {
  ThreadTeam::Shared shared(members);
  std::vector<Result> results(static_cast<size_t>(members));
  std::vector<std::exception_ptr> failures(static_cast<size_t>(members));
  std::vector<std::thread> threads;
  for (int m = 0; m < members; ++m) {
    threads.emplace_back([&, m] {
      try {
        ThreadTeam team(shared, m);
        results[static_cast<size_t>(m)] = work(team);
      } catch (...) {
        failures[static_cast<size_t>(m)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return results;
}

}  // namespace penstock::model::team_testing
