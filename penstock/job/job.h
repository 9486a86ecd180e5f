// The job that this process is a rank of, when a launcher started it: the same command runs on
// every rank; rank 0 plans, prints and writes; all train.
//
//   if (const std::unique_ptr<Job> job = Job::join({.command = "train"})) {
//     job->check_same("model", digest);
//     const std::string plan = job->from_first([&] { return make_plan(); });
//     const std::unique_ptr<runtime::World> world = job->make_world(workers, false);
//   }
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/cluster/device_name.h"
#include "penstock/job/listener.h"
#include "penstock/net/fabric_kind.h"
#include "penstock/net/tls_choice.h"
#include "penstock/probe/job_links.h"

namespace penstock::runtime {
class World;
}

namespace penstock::job {

struct JobOptions {
  std::string command = {};                    ///< "train"; all ranks must have the same
  std::chrono::milliseconds silence{12'000};   ///< a rank that has been silent for longer is lost
  std::chrono::milliseconds patience{60'000};  ///< how long ranks wait for each other to come
  net::FabricKind fabric = net::FabricKind::Auto;
  std::optional<net::TlsChoice> tls = {};  ///< nothing: as the launcher's variables say, else off
  /// That this rank's workers are dealt to; none: the CPU.
  std::vector<cluster::DeviceName> devices = {};
  /// Ends the waiting for other ranks as soon as it is true. Null: nothing does.
  const std::atomic<bool>* stop = nullptr;
  Listener listener = {};  ///< of doubts about what the launcher said; every rank has its own
};

/// Not thread-safe.
class Job {
 public:
  /// Connects to the other ranks; blocks until all of them have come. Null when this process was
  /// not started by a launcher or is the job's only rank. Throws ConfigError (variables that make
  /// no sense, a fabric that this build or this job cannot have, or not with TLS) and as
  /// net::Mesh::connect() and FabricRow::start().
  static std::unique_ptr<Job> join(const JobOptions& asked);

  virtual ~Job() = default;
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  bool is_first() const { return rank() == 0; }
  /// How often the launcher has started the job again.
  virtual int restart() const = 0;

  // All ranks make these calls in the same order.

  /// What every rank's `part` returns, by rank. When one throws, all ranks throw.
  virtual std::vector<std::string> together(const std::function<std::string()>& part) = 0;
  /// What rank 0's `part` returns. When it throws, all ranks throw.
  virtual std::string from_first(const std::function<std::string()>& part) = 0;
  /// Throws RuntimeError naming two ranks and what they have when not all have the same text.
  virtual void check_same(const std::string& what, const std::string& text) = 0;
  /// Of every rank, the number of its host: from 0, in the order of the ranks.
  virtual std::vector<int> hosts() = 0;
  /// Measures the links between the ranks: for about `budget` each within hosts and between them,
  /// and for 0.2 s each what sums take from `threads` threads that compute on every rank; not on
  /// links below 4 MB/s, where that does not count. `stop`, which may be null, ends it early.
  /// Throws as probe::measure_link().
  virtual probe::JobLinks measure_links(std::chrono::milliseconds budget, int threads,
                                        const std::atomic<bool>* stop) = 0;
  /// How many of the ranks, the last ones, only add gradients.
  virtual int servers() const = 0;
  /// The workers dealt to the ranks in blocks, servers left out. Throws ConfigError when there are
  /// fewer workers than such ranks, unless ranks `may_idle`: then those behind the others have
  /// none, and count as servers.
  virtual std::unique_ptr<runtime::World> make_world(int workers, bool may_idle) = 0;
};

/// Collective. Throws ConfigError when the ranks' options, as names and values, differ; those that
/// do are named.
void check_same_options(Job& job, const std::vector<std::pair<std::string, std::string>>& options);

}  // namespace penstock::job
