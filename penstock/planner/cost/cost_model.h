// What a stage and a cut cost under a named model. The partitioner minimises the slowest of them.
// docs/planner.md has the formulas.
//
//   const auto model = make_cost_model("penstock", cluster, GradientSync::Ring);  // named_models.h
//   double ns = model->stage_ns({.compute_ns = 1000, .step_ns = 10, .weight_bytes = 4000}, 2,
//       /*level=*/1, /*micro_batches=*/0);
//
// A `level` is the lowest one of the cluster a unit of which holds all workers concerned
// (cluster/topology.h): what the links cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "penstock/cluster/topology.h"
#include "penstock/plan/boundary_coding.h"
#include "penstock/plan/gradient_sync.h"
#include "penstock/plan/machine_sum.h"
#include "penstock/plan/sync_precision.h"

namespace penstock::planner {

/// A stage as the partitioner sees it: sums over its layers for one micro-batch on a device of
/// speed 1.
struct SegmentCost {
  /// Forward + backward, and forward once more where the stage recomputes its activations.
  int64_t compute_ns = 0;
  int64_t step_ns = 0;
  int64_t weight_bytes = 0;
  /// For each micro-batch of a step but the first that a replica has: adding its gradients to the
  /// sum.
  int64_t accumulate_ns = 0;
  /// The part of compute_ns and step_ns under which a sum between ranks can be hidden: the last
  /// backward pass of a step and the next forward pass, which steps the weights.
  int64_t overlap_ns = 0;
};

/// The same work on a device `speed` times as fast as the one that was measured, rounded up;
/// saturates. `speed` > 0.
SegmentCost on_device(const SegmentCost& segment, double speed);
int64_t on_device_ns(int64_t ns, double speed);

/// How the replicas of a stage add their gradients (plan/gradient_sync.h), m of them with W bytes.
/// A ring has one hop out of each unit of the cluster, which carries 2(m-1)/m W. With `ordered`
/// each replica sends a part to every other one. So through the link of a unit with r of them pass
/// 2 r (m-r)/m W: for the worst place of m replicas in units of U workers, r = m/2 up to m = 2U,
/// and r = U above. CPU machines (the servers) stand at the outermost level: what goes through them
/// costs that level's bandwidth and latency, however close the replicas are; without them
/// `parameter-server` and `summation` cost what `ordered` does. Summation does, too, where that is
/// faster, as between replicas of one server.
///
/// `hierarchical`: m replicas stand on n = max(2, m/U) machines of U workers (cluster.h), rounded
/// up, or on one where `level` is no higher than the machines'. Between machines they cost what
/// `summation` costs n replicas, over the levels above the machines'; inside, with r = min(m, U),
/// what `ordered` costs r replicas over the levels up to the machines', or what the fastest way
/// takes where the cluster describes its machines (plan/machine_sum.h). The larger of both counts:
/// one bucket is added inside while the one before travels.
using plan::GradientSync;

/// How long a byte of gradients occupies the slowest NIC or link of the replicas, and of the
/// servers.
struct SumTime {
  double wire_ns = 0;
  double server_ns = 0;
};

/// What the planner asks for beside the method.
enum class SyncOverlap : uint8_t {
  /// Sums between ranks are taken by the next forward pass, layer by layer.
  Hidden,
  /// SYNC waits for all of them: norms, the policy `latest`.
  Waits,
};

/// A linear function of a segment.
struct SegmentBound {
  double per_compute_ns = 1;
  double per_step_ns = 0;
  double per_weight_byte = 0;
  double fixed_ns = 0;
};

/// Immutable, so thread-safe.
class CostModel {
 public:
  CostModel(const cluster::Cluster& cluster, GradientSync sync, SyncOverlap overlap,
            FloatType precision);
  virtual ~CostModel() = default;
  virtual std::string_view name() const = 0;

  /// Time per micro-batch of a stage replicated `replicas` times on workers that share a unit of
  /// `level`, in ns, when an optimiser step takes `micro_batches` micro-batches. 0 stands for one
  /// round, that is `replicas` of them: all that can be said before the other stages are known.
  /// Never below compute / replicas; never falls when the level rises. Computation is that of a
  /// device of speed 1.
  virtual double stage_ns(const SegmentCost& segment, int replicas, int level,
                          int64_t micro_batches) const = 0;

  /// Time per micro-batch of a cut between two stages that share a unit of `level`, which `bytes`
  /// of activations cross forward and as many of gradients back. Never falls when the level rises.
  double cut_ns(int64_t bytes, int level) const {
    return cut_ns(bytes, level, boundary_, crossing_.width);
  }
  /// The same in another coding, of tokens of this width.
  double cut_ns(int64_t bytes, int level, const plan::BoundaryCoding& coding, int64_t width) const {
    if (coding.is_exact()) return message_cut_ns(bytes, level);
    return message_cut_ns(
        plan::coded_bytes(coding,
                          {.bytes = bytes, .precision = crossing_.precision, .width = width}),
        level);
  }
  /// How what crosses a cut travels: like `values`, but for the bytes. Float32 unless this is
  /// called, before the model is used.
  void code_boundaries(const plan::BoundaryCoding& coding, const plan::CodedValues& values) {
    boundary_ = coding;
    crossing_ = values;
  }

  /// Sums are made after every so many steps, under DiLoCo: what they cost is counted for one step,
  /// that part of it. 1 unless this is called, before the model is used.
  void add_every(int64_t steps) { sync_every_ = steps; }

  /// Of the bytes of weights only this share is summed, under PowerSGD; the same for all of them. 1
  /// unless this is called, before the model is used.
  void add_low_rank(double share);

  /// The smallest count in [least, most] with stage_ns(...) <= limit_ns, or 0 when there is none.
  virtual int fewest_replicas(const SegmentCost& segment, double limit_ns, int least, int most,
                              int level, int64_t micro_batches) const = 0;

  /// A lower bound on replicas * stage_ns(...) for all stages of at least `replicas` replicas that
  /// span at least `level`. That of one replica holds for all.
  virtual SegmentBound least_worker_ns(int replicas, int level, int64_t micro_batches) const;

  /// One gradient synchronisation over `replicas` workers that share a unit of `level`, or a step's
  /// part of it (add_every()), as the simulator charges it under every model: rounded up,
  /// saturating, 0 for one replica.
  int64_t sync_ns(int64_t weight_bytes, int replicas, int level) const;
  /// Its parts: the larger one of the replicas' wire and the servers', and the latency.
  int64_t wire_ns(int64_t weight_bytes, int replicas, int level, bool servers) const;
  int64_t server_ns(int64_t weight_bytes, int replicas) const;
  int64_t sync_latency_ns(int level, bool servers) const;
  /// Whether a synchronisation of so many bytes goes through the servers.
  bool uses_servers(int64_t weight_bytes, int replicas, int level) const;
  /// Whether sums over workers that share a unit of `level` travel while they compute: those
  /// between ranks do but for those of DiLoCo and PowerSGD, threads of one process wait for each
  /// other.
  bool hides(int level) const {
    return level > 0 && overlap_ == SyncOverlap::Hidden && sync_ != GradientSync::DiLoCo &&
           sync_ != GradientSync::PowerSgd && !waits_for_sums(level);
  }
  /// What one synchronisation of so many bytes takes from a replica's computing (cluster::Level::
  /// processor_ns_per_gb), where its sums travel bucket by bucket: rounded up, saturating. It
  /// counts the bytes that a replica sends (plan/gradient_sync.h), all at the highest cost on their
  /// way; `hierarchical` those inside a machine and the machine's share of those between machines.
  int64_t processor_ns(int64_t weight_bytes, int replicas, int level, bool servers) const;
  /// And what the messages of one bucket take however short they are (Level::
  /// processor_ns_per_message): a replica sends 2 (n - 1) to the others, or one to servers, and
  /// receives as many. The time per byte has it for one message in 256 KiB: that part is left out.
  int64_t short_messages_ns(int64_t bucket_bytes, int replicas, int level, bool servers) const;
  /// By how much one synchronisation makes a step longer, at least: by the replica's processor
  /// time, and by the sum, less the computation and steps that can hide it. (plan/sum_wait.h has
  /// the exact time, which depends on the order of the layers.)
  double least_sum_ns(const SegmentCost& segment, int replicas, int level) const;
  /// `hierarchical`: how replicas are added inside a machine; nothing where the cluster does not
  /// describe its machines, or each of them is one worker.
  std::optional<plan::MachineSum> machine_sum(int64_t weight_bytes, int replicas, int level) const;
  /// Workers that `hierarchical` adds first; 1 for all other methods.
  int machine_size() const { return machine_size_; }
  /// The slowest link on the way to the servers of what sends to them: a worker, or a machine.
  int64_t network_bytes_per_s() const { return network_bytes_per_s_; }
  const cluster::Topology& topology() const { return topology_; }
  GradientSync sync() const { return sync_; }
  int64_t sync_every() const { return sync_every_; }
  FloatType precision() const { return precision_; }
  /// What a sum moves through the links of a level of gradients with so many bytes in float32:
  /// threads of one process add them as they are.
  int64_t wire_bytes(int64_t weight_bytes, int level) const {
    const int64_t summed =
        share_ == 1 ? weight_bytes
                    : static_cast<int64_t>(static_cast<double>(weight_bytes) * share_ + 0.5);
    return topology_.path(level).by_reference ? summed : plan::wire_bytes(summed, precision_);
  }
  SyncOverlap overlap() const { return overlap_; }

 protected:
  /// cut_ns() of what travels.
  virtual double message_cut_ns(int64_t bytes, int level) const = 0;
  /// Time of a byte through the links of a level.
  double ns_per_byte(int level) const { return ns_per_byte_[static_cast<size_t>(level)]; }
  /// The same for a byte of weights whose gradients travel in the precision of sums.
  double sum_ns_per_byte(int level) const { return sum_ns_per_byte_[static_cast<size_t>(level)]; }
  double latency_ns(int level) const {
    return static_cast<double>(topology_.path(level).latency_ns);
  }
  /// The time of a synchronisation over at least two replicas, latency included, divided by
  /// `divisor`: the number of replicas or 1. Divided by the replicas it never rises with them,
  /// rounding included; undivided it never falls.
  double sync_time_ns(double weight_bytes, int replicas, int level, double divisor) const;
  /// The same of a round of steps, however long it is.
  double whole_sum_ns(double weight_bytes, int replicas, int level, double divisor) const;
  /// The processor time of a replica for that, in the same way; that of the way that takes less
  /// where replicas or servers may add.
  double processor_time_ns(double weight_bytes, int replicas, int level, double divisor) const;
  /// The part per weight byte and the fixed part of a lower bound on sync_time_ns(..., 1) for at
  /// least these replicas and this level.
  SegmentBound least_sync_ns(int replicas, int level) const;
  /// The highest level up to `level` within which workers wait for sums; 0: none.
  int waiting_level(int level) const;

 private:
  // Whether workers of a unit wait for sums. In levels that join nothing, nobody does.
  bool waits_for_sums(int level) const {
    return topology_.path(level).sums_wait && topology_.unit_size(level) > 1;
  }

  enum class Machines : uint8_t { RoundedDown, Exact, RoundedUp };
  // Who adds gradients: replicas, or machines of them. What follows is divided by `divisor`, with
  // as few roundings as possible.
  struct Members {
    int replicas = 2;
    /// On as many workers as the machines have that count, which are at least two: n U.
    double on = 2;
    double divisor = 1;
  };
  Members members(int replicas, Machines machines, double divisor = 1) const;
  double count(const Members& members) const { return members.on / machine_size_; }
  // For times that are divided by the replicas the number of machines is no whole one, so that none
  // rises with the replicas; others count machines that are not full as full.
  Members counted(int replicas, double divisor) const {
    return members(replicas, divisor > 1 ? Machines::Exact : Machines::RoundedUp, divisor);
  }

  double peers_ns_per_byte(const Members& members, int level) const;
  SumTime service_ns_per_byte(const Members& members) const;
  double service_factor(double count) const;
  // Of the links from above level `below` to `level`, when units of `below` send to each other as
  // `ordered` does. `on`: workers of these units.
  double links_ns_per_byte(double on, int below, int level, double divisor) const;
  int64_t links_wire_ns(int64_t weight_bytes, int64_t units, int below, int level) const;
  // Inside a unit of `level` of a machine, whose NIC sends `network` bytes per byte.
  double inside_ns_per_byte(const Members& members, int level, double network) const;
  plan::MachineSum inside_sum(int replicas, int level, double network) const;
  // What the NIC of a machine sends between peers.
  double peers_factor(const Members& members, int level) const;
  // Of a replica, per byte of weights.
  double processor_ns_per_byte(int replicas, int level, bool servers, double divisor) const;
  /// Whether no part goes through servers here.
  bool all_reduces() const;

  cluster::Topology topology_;
  GradientSync sync_;
  int64_t sync_every_ = 1;
  double share_ = 1;  ///< of the weights' bytes that is summed
  SyncOverlap overlap_;
  FloatType precision_;
  plan::BoundaryCoding boundary_ = {};
  plan::CodedValues crossing_ = {};
  /// CPU machines, each counted as often as its NIC is faster than a worker's.
  double servers_ = 0;
  // Of `hierarchical`; a worker is a machine under all other methods.
  int machine_level_ = 0;
  int machine_size_ = 1;
  int64_t network_bytes_per_s_ = 1;
  double network_ns_per_byte_ = 0;           ///< in the precision of sums
  std::optional<cluster::Machine> machine_;  ///< bandwidths in the precision of sums
  std::vector<double> ns_per_byte_;
  // Of float32, in the precision of sums.
  std::vector<double> sum_ns_per_byte_;
  std::vector<int64_t> sum_bandwidth_bytes_per_s_;
  std::vector<double> own_ns_per_byte_;  ///< of the level's own links; 0 where it joins nothing
  std::vector<int64_t> own_bandwidth_bytes_per_s_;
  std::vector<double> processor_ns_per_byte_;  ///< sent within a level, in the precision of sums
};

}  // namespace penstock::planner
