// Measures this machine as a cluster of workers: what a message costs between them, how fast they
// add gradients and compute, and what memory each has. docs/clusters.md says what the planner does
// with the numbers.
//
//   const ProbeResult result = probe({.workers = 2, .seconds = 5});
//   write_file_atomic("cluster.toml", to_toml(result));
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cluster/cluster.h"
#include "penstock/probe/machine.h"
#include "penstock/probe/measurement.h"

namespace penstock::probe {

/// How the workers of the cluster file are joined. Names: "threads", "tcp".
enum class Transport : uint8_t {
  Threads,  ///< of one process: tensors by reference, gradients added in shared memory
  Tcp,      ///< processes, joined over the loopback interface
};
Transport parse_transport(std::string_view name);
std::string_view to_string(Transport transport);

struct ProbeOptions {
  int workers = 0;  ///< 0: one per core
  Transport transport = Transport::Threads;
  int64_t message_bytes = 4'194'304;  ///< of the messages whose bandwidth is measured
  double seconds = 5;                 ///< for everything together
  /// Whether TCP to another process, which is started for it, is measured, too.
  bool with_processes = true;
  /// Called before each measurement and once at the end.
  std::function<void(int done, int total, const std::string& what)> progress = {};
};

struct ProbeResult {
  Machine machine;
  int workers = 1;
  Transport transport = Transport::Threads;
  int64_t message_bytes = 0;
  int64_t summed_bytes = 0;  ///< length of the vectors that one worker adds

  Measurement hand_over_ns;  ///< a message by reference to a thread that waits for it, one way
  /// A message that the receiving thread copies, hand-over not counted.
  Measurement copied_bytes_per_s;
  std::optional<Measurement> tcp_ns;  ///< a message of a few bytes to another process, one way
  std::optional<Measurement> tcp_bytes_per_s;
  std::string tcp_failure;  ///< why TCP was not measured; empty if nobody wanted it
  /// Of a float vector added to another, by one worker while the others rest.
  Measurement sum_alone_bytes_per_s;
  Measurement sum_shared_bytes_per_s;  ///< each of all workers, at the same time
  /// Float operations per second of small matrix products in portable C++, not of a tuned library.
  Measurement compute_alone_flops;
  Measurement compute_shared_flops;
};

/// Throws ConfigError for messages and seconds that probe() refuses on every machine.
void check_sizes(const ProbeOptions& options);

/// Blocks for about `seconds` (more where a single repetition takes longer than its share). Starts
/// threads and, for TCP, a process; all have ended when it returns. Throws ConfigError for workers
/// outside 0..1024, messages below 8 bytes or above 1 GiB or too large for the memory, seconds
/// outside 0.1..600; RuntimeError when threads cannot be started; TransportError when TCP is wanted
/// and fails: for threads such a failure is noted in the result.
ProbeResult probe(const ProbeOptions& options);

/// A valid cluster of one level. Measurements are rounded to three digits.
cluster::Cluster cluster_of(const ProbeResult& result);

/// The measurements, one per line, for people.
std::vector<std::string> measurement_lines(const ProbeResult& result);
/// What makes the measurements doubtful: a busy machine, more workers than cores, no TCP.
std::vector<std::string> notes(const ProbeResult& result);

/// The cluster file, with the measurements and notes as comments.
std::string to_toml(const ProbeResult& result);
/// All measurements and the cluster file as one JSON object.
std::string to_json(const ProbeResult& result);

}  // namespace penstock::probe
