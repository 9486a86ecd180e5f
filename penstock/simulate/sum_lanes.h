// Sums of gradients that travel while the workers compute; internal to the simulator.
//
//   sums.give(stage, mini_batch, bucket, made_ns, events);    // by every replica
//   sums.arrival_ns(stage, mini_batch, bucket);               // kUnknown until a lane has served
//   it
//
// A lane serves one bucket at a time, the most urgent first: of the earliest mini-batch the one
// that the next forward pass uses first. A bucket comes when its last replica has made it; a more
// urgent one overtakes at once what the lane serves (sums travel in pieces of 512 KiB). Replicas of
// a stage share a lane, and so do stages that share a worker; all servers together are one more. A
// sum is there when its lanes have served it, and the latency later.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/schedule/timeline.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/simulate/event_queue.h"
#include "penstock/simulate/values.h"

namespace penstock::simulate::detail {

/// Of a bucket, on one lane.
struct SumJob {
  StageId stage;
  MiniBatchId mini_batch;
  int32_t bucket = 0;
  int64_t made_ns = 0;
  int64_t left_ns = 0;

  bool more_urgent(const SumJob& other) const {
    if (mini_batch != other.mini_batch) return mini_batch < other.mini_batch;
    return bucket != other.bucket ? bucket < other.bucket : stage < other.stage;
  }
};

/// What one lane serves, in simulated time.
class SumLane {
 public:
  explicit SumLane(bool keeps_events) : keeps_events_(keeps_events) {}

  void add(const SumJob& job) { coming_.push(job); }
  /// Serves until `now_ns`; calls done(job, end_ns) for each job that ends.
  void serve_until(int64_t now_ns, const std::function<void(const SumJob&, int64_t)>& done);
  /// When something changes unless a job is added; kNever without jobs.
  static constexpr int64_t kNever = -1;
  int64_t next_ns() const;
  /// Of the event that it waits for.
  int64_t expected_ns = kNever;

  const std::vector<schedule::SumEvent>& events() const { return events_; }

 private:
  struct Later {
    bool operator()(const SumJob& a, const SumJob& b) const {
      return a.made_ns != b.made_ns ? a.made_ns > b.made_ns : b.more_urgent(a);
    }
  };
  struct LessUrgent {
    bool operator()(const SumJob& a, const SumJob& b) const { return b.more_urgent(a); }
  };
  void record(const SumJob& job, int64_t end_ns);

  bool keeps_events_;
  int64_t now_ns_ = 0;
  std::priority_queue<SumJob, std::vector<SumJob>, Later> coming_;
  std::priority_queue<SumJob, std::vector<SumJob>, LessUrgent> ready_;
  std::vector<schedule::SumEvent> events_;
};

class SumLanes {
 public:
  static constexpr int64_t kUnknown = -1;

  /// Keeps references to the costs and the table.
  SumLanes(const Costs& costs, const schedule::WorkerTable& table, bool keeps_events);

  bool any() const { return !lanes_.empty(); }
  /// Whether the stage's sums travel on a lane.
  bool carries(StageId stage) const { return !lane_of_stage_.empty() && lane_of(stage) >= 0; }

  /// A replica has made its part at `made_ns`, not before the last event taken out of the queue.
  void give(StageId stage, MiniBatchId mini_batch, size_t bucket, int64_t made_ns,
            EventQueue& events);
  /// When the sum is with the replicas. While that is unknown, `worker` is among those that
  /// move_on() wakes.
  int64_t arrival_ns(StageId stage, MiniBatchId mini_batch, size_t bucket, int32_t worker);
  /// A replica has all sums of the mini-batch; once each.
  void taken(StageId stage, MiniBatchId mini_batch);
  /// An event of a lane has come. Appends the workers that continue.
  void move_on(int32_t lane, int64_t now_ns, EventQueue& events, std::vector<int32_t>& runnable);

  /// How many replicas have given their part.
  int32_t given(StageId stage, MiniBatchId mini_batch, size_t bucket) const;
  /// By worker, then by server.
  std::vector<schedule::SumLane> timeline() const;

 private:
  struct Bucket {
    int32_t given = 0;
    int32_t parts = 0;  ///< lanes that have not served it yet
    int64_t made_ns = 0;
    int64_t served_ns = 0;
    std::vector<int32_t> waiting;
  };
  struct Round {
    std::vector<Bucket> buckets;
    int taken = 0;
  };
  using Rounds = std::map<int64_t, Round>;  ///< by mini-batch

  int32_t lane_of(StageId stage) const { return lane_of_stage_[stage.index()]; }
  Round& round(StageId stage, MiniBatchId mini_batch);
  void expect(int32_t lane, EventQueue& events);

  const Costs& costs_;
  const schedule::WorkerTable& table_;
  std::vector<int32_t> lane_of_stage_;  ///< -1: none
  std::vector<SumLane> lanes_;          ///< that of the servers is the last one, if there is one
  bool has_servers_ = false;
  std::vector<Rounds> rounds_;  ///< by stage
};

}  // namespace penstock::simulate::detail
