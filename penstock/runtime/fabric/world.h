// The ranks of one job, of which this process is one: who they are, and what they decide together
// between runs. Lives as long as the pipelines that use it.
//
//   const std::unique_ptr<World> world = make_local_world(4);   // four threads of this process
//   Pipeline pipeline(model, ..., {.world = world.get()});
//
// Every call but site() is collective: all ranks make the same calls in the same order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/runtime/fabric/device_link.h"
#include "penstock/runtime/fabric/fabric.h"

namespace penstock::runtime {

/// What a rank has sent to others and received from them since the world was made.
struct WireStats {
  int64_t sent_bytes = 0;  ///< of tensors
  int64_t received_bytes = 0;
  /// By how much this rank's clock, put right, may differ from rank 0's.
  int64_t clock_error_ns = 0;
};

/// Not thread-safe: one thread of each rank calls it, another one what aside() returns.
class World {
 public:
  virtual ~World() = default;
  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  virtual const Site& site() const = 0;

  /// The fabric of one run. Blocks until all ranks are there. Throws TimeoutError, and RuntimeError
  /// when ranks do not fit together.
  virtual std::unique_ptr<Fabric> open(const RunSetup& setup, Wait& wait) = 0;

  /// Every rank's text, by rank; for small things that ranks agree on. Throws TimeoutError.
  virtual std::vector<std::string> all_gather(const std::string& text, Wait& wait) = 0;

  /// Every rank's text, by rank, on rank 0; nothing elsewhere. For what only rank 0 needs. Rank 0
  /// blocks until all are there. Throws TimeoutError.
  virtual std::vector<std::string> gather(const std::string& text, Wait& wait) = 0;

  /// The mean of a list of tensors over the replicas of a stage, added in their order: `own` holds
  /// those of the replicas on this rank, by replica. Returns nothing on a rank without one. What it
  /// returns is shared with nobody. Throws TimeoutError.
  virtual model::Tensors average(int replicas, const std::map<int, model::Tensors>& own,
                                 Wait& wait) = 0;

  /// Tensors in the host's memory of rank `from`, on rank `to`; nothing elsewhere. On the other
  /// ranks `tensors` is not looked at. What it returns must not be written to. Throws TimeoutError,
  /// TransportError.
  virtual model::Tensors bring(int from, int to, const model::Tensors& tensors, Wait& wait) = 0;

  /// The same ranks for one more thread of each: the texts that it gathers are exchanged beside
  /// this world's. open() and average() are left to this one. Throws TimeoutError.
  virtual std::unique_ptr<World> aside(Wait& wait) = 0;

  /// Whether tensors between GPUs of different ranks go by link(): messages, and what replicas add
  /// up; the same on all ranks.
  virtual bool has_links() const { return false; }
  /// This rank's end of a link, which blocks until the other end is there; null on ranks that are
  /// neither. Throws TransportError, TimeoutError.
  virtual std::unique_ptr<LinkEnd> link(const LinkPlace&, Wait&) { return nullptr; }

  /// Not collective. 0 where ranks share memory. What goes by links is not counted.
  virtual WireStats wire() const { return {}; }
};

}  // namespace penstock::runtime
