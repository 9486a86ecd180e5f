// What two workers, or a run of consecutive ones, share: the questions that placement asks of a
// cluster. Workers are numbered from 0, innermost level first, so a unit of a level is a run of
// consecutive workers.
//
//   Topology topology(cluster);                 // 2 levels: 4 GPUs in a server, 4 servers
//   topology.level_of({.first = 2, .count = 3});  // 2: workers 2, 3 and 4 span two servers
//   topology.path(2).bandwidth_bytes_per_s;       // the slowest link on the way between servers
//
// Immutable, so thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/cluster/cluster.h"

namespace penstock::cluster {

/// `count` consecutive workers.
struct WorkerRange {
  int first = 0;
  int count = 1;

  int end() const { return first + count; }
  bool operator==(const WorkerRange&) const = default;
};

/// What a message passes between two workers whose smallest common unit is one of some level: its
/// bandwidth and latency.
struct Path {
  int64_t bandwidth_bytes_per_s = 1;  ///< the slowest level passed
  int64_t latency_ns = 0;             ///< one way, all levels passed together
  /// Tensors move by reference: a message costs latency only (Level::by_reference).
  bool by_reference = false;
  /// Workers wait for sums of gradients: at each of the levels passed (Level::sums_wait).
  bool sums_wait = false;
  /// The highest of the levels passed that are not by reference (Level::processor_ns_per_gb).
  int64_t processor_ns_per_gb = 0;
  int64_t processor_ns_per_message = 0;  ///< in the same way

  bool operator==(const Path&) const = default;
};

class Topology {
 public:
  /// Throws ConfigError as cluster::validate.
  explicit Topology(const Cluster& cluster);

  int num_workers() const { return unit_size_.back(); }
  /// Levels are 1 .. num_levels(); level 0 is a worker alone.
  int num_levels() const { return static_cast<int>(paths_.size()) - 1; }
  /// Workers in one unit of a level; 1 for level 0.
  int unit_size(int level) const { return unit_size_[static_cast<size_t>(level)]; }

  /// The lowest level one unit of which holds the whole range; 0 for a single worker. Throws
  /// InternalError for an empty range or one beyond the workers. O(levels).
  int level_of(WorkerRange range) const;
  /// The lowest level that two workers share, both from 0 to num_workers() - 1; 0 for the same
  /// worker.
  int level_between(int a, int b) const;

  /// What messages within a unit of `level` may have to pass, at worst: never faster than that of a
  /// lower level. Levels with a count of 1 join nothing and are not passed. Level 0: no latency, by
  /// reference.
  const Path& path(int level) const { return paths_[static_cast<size_t>(level)]; }

 private:
  std::vector<int> unit_size_;  ///< per level, from 0
  std::vector<Path> paths_;     ///< per level, from 0
};

}  // namespace penstock::cluster
