// What every report of a plan needs and the plan does not state directly: where stages run by name,
// what each part takes per micro-batch, which part is the slowest. Internal to the reports.
//
//   const PlanView view(plan);
//   view.stages[0].where;               // "server 0-3"
//   view.bottleneck.is_stage(0);        // true
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cluster/topology.h"
#include "penstock/plan/plan.h"

namespace penstock::report {

/// A stage's time per micro-batch of the whole pipeline: its replicas take turns, and share each
/// optimiser step's synchronisation.
struct StageView {
  double forward_ns = 0;
  double backward_ns = 0;  ///< with the second forward of a stage that recomputes
  /// What sums make it longer by: waiting, without what computation hides, and the processor time
  /// of moving and adding (plan/sum_wait.h).
  double sync_ns = 0;
  double step_ns = 0;
  std::optional<cluster::WorkerRange> place;  ///< nothing where workers hold several stages
  std::string workers;                        ///< "0-14", "3", "0, 8", "-"
  /// By level names, "server 0-3"; empty where the cluster has one level.
  std::string where;
  std::optional<int64_t> memory_limit_bytes = {};  ///< of the smallest of its workers

  double time_ns() const { return forward_ns + backward_ns + sync_ns + step_ns; }
};

struct LinkView {
  /// There and back, per micro-batch: 2 a / B + latency, latency alone by reference.
  double time_ns = 0;
  /// The outermost level of the cluster that a message may have to pass; "-" when nothing is known.
  std::string level;
  bool by_reference = false;
};

/// Where workers hold several stages: what one of them does per micro-batch of the whole pipeline.
struct WorkerView {
  std::vector<size_t> stages;  ///< ascending
  double time_ns = 0;          ///< of all its stages
  int64_t memory_bytes = 0;
  std::optional<int64_t> memory_limit_bytes = {};
};

/// The slowest stage, or the slowest boundary between two stages: then `index` is the largest of
/// the links across it. Where workers hold several stages, the slowest worker, or the link between
/// two workers that its messages keep busy for longest.
struct Bottleneck {
  enum class Kind : uint8_t { None, Stage, Link, Worker };
  Kind kind = Kind::None;
  size_t index = 0;
  double time_ns = 0;
  int64_t boundary = 0;             ///< follows this stage
  int64_t crossing = 0;             ///< links across the boundary, or between the two workers
  std::vector<size_t> stages = {};  ///< of the worker

  bool is_stage(size_t s) const {
    return kind == Kind::Stage
               ? index == s
               : kind == Kind::Worker && std::find(stages.begin(), stages.end(), s) != stages.end();
  }
  bool is_link(size_t l) const { return kind == Kind::Link && index == l; }
};

/// Keeps a reference to the plan. Accepts any plan, also one that plan::validate would refuse: what
/// cannot be computed is left out.
struct PlanView {
  /// `memory_limit_bytes` per worker, nothing: that of the devices.
  explicit PlanView(const plan::Plan& plan, std::optional<int64_t> memory_limit_bytes = {});

  const plan::Plan& plan;
  std::optional<cluster::Topology> topology;  ///< nothing when the plan's cluster is not valid
  std::vector<StageView> stages;
  std::vector<LinkView> links;
  /// Only where workers hold several stages and the plan fits its cluster.
  std::vector<WorkerView> workers;
  Bottleneck bottleneck;
  std::optional<int64_t> least_memory_limit_bytes = {};  ///< over all stages

  /// "stage 0 (conv1 .. pool5)", "worker 3 (stages 3 and 12)", "the link from stage 0 to stage 1",
  /// "the 3 links that pass from stage 0 to later ones".
  std::string bottleneck_name() const;
  /// How replicas add gradients: "ordered", "ring in bfloat16".
  std::string gradient_method() const;
  /// What their sums take from computing: "sums take processor time: network 8 s per GB, up to 26
  /// ms per step (stage 0)"; empty where they take nothing.
  std::string processor_text() const;
  /// Of a level as Topology counts them (from 1): its name, or "level 2".
  std::string level_name(int level) const;
  /// The units that hold the workers, from the outside in, down to `least_level`: "rack 1 server
  /// 0-3". Levels with one unit are left out.
  std::string where(cluster::WorkerRange range, int least_level = 1) const;

 private:
  std::vector<std::vector<int>>
      workers_by_stage_;  ///< by stage; empty when no worker holds several
  void add_stage(const plan::Stage& stage, std::optional<cluster::WorkerRange> place,
                 std::optional<int64_t> memory_limit_bytes);
  void add_link(const plan::Link& link);
  void add_workers(std::optional<int64_t> memory_limit_bytes);
  void find_slowest_boundary();
  void find_slowest_link();
  bool exists(const plan::Link& link) const;
  double sent_bytes(const plan::Link& link, int level) const;
  int level_between(const cluster::WorkerRange& a, const cluster::WorkerRange& b) const;
  int level_between(const std::vector<int>& a, const std::vector<int>& b) const;
};

/// What travels of the link's messages: "6.4 MB", or "6.4 MB, 0 B back", or "1.7 MB in int8".
std::string bytes_text(const plan::Link& link, Precision precision);

}  // namespace penstock::report
